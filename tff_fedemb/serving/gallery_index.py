"""A file of a large gallery: embeddings of known images, to be searched.

Exact, or by a graph of neighbours that finds most of the nearest in a fraction
of the time (HNSW: Malkov and Yashunin, "Efficient and Robust Approximate
Nearest Neighbor Search Using Hierarchical Navigable Small World Graphs", IEEE
TPAMI 2020). A graph cannot lose an image: those that are removed are erased and
passed over, until they are so many that the graph is built anew.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
import dataclasses
import json
import os
from typing import Any
import zipfile

from etils import epy
import numpy as np

from tff_fedemb import errors
from tff_fedemb import progress as progress_lib
from tff_fedemb import whole_files
from tff_fedemb.serving import image_sources

with epy.lazy_imports():
  import faiss
  import pandas as pd

  from tff_fedemb.serving import saved_models

EXACT, HNSW = "exact", "hnsw"
KINDS = (EXACT, HNSW)

# A graph has links of an image, and images that a search keeps in sight.
_LINKS, _SEARCH = 32, 192
# Share of removed images from which on a graph is built anew.
_MAX_REMOVED = 0.25
_BLOCK_ROWS = 10_000
# Recall is measured on so many queries, and nearest images of each.
_NUM_QUERIES, _NUM_NEAREST = 200, 10
_VERSION = 2


@dataclasses.dataclass(frozen=True)
class Embedded:
  """Images with unit-norm embeddings float64 `[n, dim]`, by their rows."""

  paths: list[str]
  embeddings: np.ndarray
  rows: np.ndarray


@dataclasses.dataclass(frozen=True)
class New:
  """Images of a gallery's folder that are not in the index.

  Attributes:
    source: Images of the whole folder.
    rows: Rows of those that are new.
  """

  source: image_sources.ImageSource
  rows: np.ndarray

  def names(self, rows: np.ndarray) -> list[str]:
    """Returns the classes of some images."""
    labels = self.source.labels[rows].tolist()
    return [self.source.class_names[label] for label in labels]


@dataclasses.dataclass
class GalleryIndex:
  """A gallery, held in memory.

  Attributes:
    model: Digest of the model that embeds its images; "" if it is in no file.
    kind: One of `KINDS`.
    images: Rows with `name`, the class of an image, and `path`, its file when
      it was added; both are "" once it is removed.
    vectors: Index of faiss, of a unit embedding for each row.
  """

  model: str
  kind: str
  images: pd.DataFrame = dataclasses.field(
    default_factory=lambda: pd.DataFrame([], columns=["name", "path"])
  )
  vectors: Any = None

  def __len__(self) -> int:
    return int(self.is_there.sum())

  @property
  def is_there(self) -> np.ndarray:
    """Whether an image has not been removed, bool `[n]`."""
    return (self.images["name"] != "").to_numpy(bool)

  @property
  def names(self) -> set[str]:
    """Classes that have an image."""
    return set(self.images["name"]) - {""}

  @property
  def largest_class(self) -> int:
    """Number of images of the largest class."""
    return int(self.images["name"][self.is_there].value_counts().max())

  def list_new(
    self, folder: str, model: saved_models.Model, *, on_bad_example: str
  ) -> New:
    """Lists the images of a folder that are not in the index.

    Args:
      folder: With one sub-folder a class.
      model: Model that embeds them.
      on_bad_example: One of `bad_examples.POLICIES`.

    Raises:
      FieldError: If the folder has none.
    """
    source = image_sources.open_folder(
      folder,
      model.image_shape,
      on_bad_example=on_bad_example,
      name="gallery",
      for_pairs=False,
    )
    there = set(self.images["path"])
    is_new = [
      not there or os.path.realpath(path) not in there for path in source.paths
    ]
    return New(source, np.flatnonzero(is_new))

  def add_new(self, model: saved_models.Model, new: New) -> int:
    """Embeds and adds images, and returns how many could be read."""
    if not new.rows.size:
      return 0
    found = embed(model, new.source, new.rows)
    # A file's paths mean the same in every working directory.
    paths = [*map(os.path.realpath, found.paths)] if self.model else found.paths
    self.add(found.embeddings, new.names(found.rows), paths)
    return len(paths)

  def add(
    self, embeddings: np.ndarray, names: Sequence[str], paths: Sequence[str]
  ) -> None:
    """Adds images.

    Args:
      embeddings: `[m, dim]`, of length 1.
      names: Class of each, `[m]`.
      paths: Path of each, `[m]`.
    """
    added = pd.DataFrame(
      {"name": list(names), "path": list(paths)}, dtype=object
    )
    self.images = pd.concat([self.images, added], ignore_index=True)
    if self.vectors is None:
      self.vectors = _create(self.kind, embeddings.shape[1])
    _add(self.vectors, np.asarray(embeddings, np.float32))

  def remove(self, names: Collection[str]) -> int:
    """Removes all images of some classes, and returns how many.

    Privacy:
      Their embeddings, paths and names are erased, also where a graph keeps
      their places.

    Raises:
      FieldError: If there is no such class.
    """
    present = self.names
    for name in names:
      if name not in present:
        raise errors.FieldError("remove", "be classes of the index", name)
    gone = self.images["name"].isin(list(names)).to_numpy()
    if gone.any():
      self._embeddings()[gone] = 0
      self.images.loc[gone] = ""
    is_there, count = self.is_there, len(self.images)
    most = 0 if self.kind == EXACT else _MAX_REMOVED * count
    if count - len(self) > most:
      # Leaves out what was removed.
      vectors = _create(self.kind, self.vectors.d)
      _add(vectors, self._embeddings()[is_there])
      self.vectors = vectors
      self.images = self.images[is_there].reset_index(drop=True)
    return int(gone.sum())

  def _embeddings(self) -> np.ndarray:
    """All unit embeddings, removed ones too, where they are."""
    flat = self.vectors if self.kind == EXACT else self.vectors.storage
    flat = faiss.downcast_index(flat)
    return faiss.rev_swig_ptr(flat.get_xb(), flat.ntotal * flat.d).reshape(
      flat.ntotal, flat.d
    )

  def search(
    self, queries: np.ndarray, count: int, *, exact: bool = False
  ) -> tuple[np.ndarray, np.ndarray]:
    """Finds the nearest images.

    Args:
      queries: Unit embeddings `[q, dim]`.
      count: Largest number of images for each.
      exact: Whether to go by all images where there is a graph.

    Returns:
      Similarities, descending, and rows, `[q, min(count, n)]`; -inf and -1
      where a graph found no more.
    """
    queries = np.asarray(queries, np.float32)
    count = min(count, len(self))
    is_there, selector = self.is_there, None
    if not is_there.all():
      # An array that faiss reads while it searches.
      bits = np.packbits(is_there, bitorder="little")
      selector = faiss.IDSelectorBitmap(len(is_there), faiss.swig_ptr(bits))
    if self.kind == HNSW and not exact:
      options = faiss.SearchParametersHNSW(
        sel=selector, efSearch=max(_SEARCH, 2 * count)
      )
      searched = self.vectors
    else:
      options = selector and faiss.SearchParameters(sel=selector)
      searched = self.vectors if self.kind == EXACT else self.vectors.storage
    similarities, rows = searched.search(queries, count, params=options)
    return np.where(rows < 0, -np.inf, similarities), rows

  def measure_recall(self, queries: np.ndarray) -> float | None:
    """Share of the ten nearest of some queries that a graph finds.

    Returns:
      In [0, 1]; None for an exact index.
    """
    if self.kind == EXACT:
      return None
    some = queries[:: -(-len(queries) // _NUM_QUERIES)]
    _, found = self.search(some, _NUM_NEAREST)
    _, nearest = self.search(some, _NUM_NEAREST, exact=True)
    return float(np.mean((found[:, :, None] == nearest[:, None]).any(axis=1)))

  def write(self, path: str | os.PathLike[str]) -> None:
    """Writes the index, whole or not at all, in place of an earlier one."""
    about = {
      "version": _VERSION,
      "model": self.model,
      "kind": self.kind,
      "images": self.images.to_dict("list"),
    }
    with (
      whole_files.replacing(path) as partial,
      zipfile.ZipFile(partial, "w") as archive,
    ):
      archive.writestr("about.json", json.dumps(about))
      with archive.open("vectors", "w", force_zip64=True) as file:
        faiss.write_index(self.vectors, faiss.PyCallbackIOWriter(file.write))


def read(path: str | os.PathLike[str], model: str) -> GalleryIndex:
  """Reads an index.

  Args:
    path: The file.
    model: Digest of the model that it must be of.

  Raises:
    FieldError: If it is no index, or another model's.
  """
  must = "be a file that this program wrote"
  with (
    errors.as_field_error("index", must, path),
    zipfile.ZipFile(path) as archive,
  ):
    about = json.loads(archive.read("about.json"))
    if about["version"] != _VERSION:
      raise ValueError("it is of another version")
    with archive.open("vectors") as file:
      vectors = faiss.read_index(faiss.PyCallbackIOReader(file.read))
    images = pd.DataFrame(about["images"], dtype=object)
    index = GalleryIndex(about["model"], about["kind"], images, vectors)
  if index.model != model:
    raise errors.FieldError(
      "index", "be of the same model as saved_model", f"{path} of another"
    )
  return index


def embed(
  model: saved_models.Model, source: image_sources.ImageSource, rows: np.ndarray
) -> Embedded:
  """Embeds images of a source, those that can be read.

  Args:
    model: The model.
    source: The images, which are files.
    rows: Rows of the images.

  Raises:
    DataError: If none can be read, or one that is not to be skipped.
  """
  embeddings, read = image_sources.embed_rows(model.embed, source, rows)
  if not read.size:
    raise errors.DataError(
      f"{source.description} must have one that can be read, found none of"
      f" {len(rows):,}."
    )
  embeddings = embeddings.astype(np.float64)
  norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
  embeddings /= np.where(norms > 0, norms, 1.0)
  paths = [os.fspath(source.paths[row]) for row in read]
  return Embedded(paths, embeddings, read)


def _create(kind: str, dim: int) -> Any:
  if kind == EXACT:
    return faiss.IndexFlatIP(dim)
  return faiss.IndexHNSWFlat(dim, _LINKS, faiss.METRIC_INNER_PRODUCT)


def _add(vectors: Any, embeddings: np.ndarray) -> None:
  with progress_lib.create_bar(
    "Indexing", unit="images", total=len(embeddings)
  ) as progress:
    for start in range(0, len(embeddings), _BLOCK_ROWS):
      some = np.ascontiguousarray(embeddings[start : start + _BLOCK_ROWS])
      vectors.add(some)
      progress.update(len(some))
