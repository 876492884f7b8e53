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
import pathlib
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
_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Embedded:
  """Images with unit-norm embeddings float64 `[n, dim]`, and their classes."""

  paths: list[str]
  embeddings: np.ndarray
  labels: np.ndarray


@dataclasses.dataclass(frozen=True)
class New:
  """Images of a gallery's folder that are not in the index.

  Attributes:
    source: The images.
    paths: Path of each.
    class_names: By label.
  """

  source: image_sources.ImageSource
  paths: tuple[pathlib.Path, ...]
  class_names: tuple[str, ...]

  @property
  def names(self) -> set[str]:
    """Classes that have an image."""
    return {self.class_names[label] for label in self.source.labels}


@dataclasses.dataclass
class GalleryIndex:
  """A gallery, held in memory.

  Attributes:
    model: Digest of the model that embeds its images; "" if it is in no file.
    kind: One of `KINDS`.
    class_names: Names of the classes, by label; those without an image may be
      there.
    labels: Class of each image, int32 `[n]`.
    paths: Where each image was when it was added.
    is_there: Whether an image has not been removed, bool `[n]`.
    vectors: What finds the nearest of the `n` unit embeddings.
  """

  model: str
  kind: str
  class_names: list[str] = dataclasses.field(default_factory=list)
  labels: np.ndarray = dataclasses.field(
    default_factory=lambda: np.zeros([0], np.int32)
  )
  paths: list[str] = dataclasses.field(default_factory=list)
  is_there: np.ndarray = dataclasses.field(
    default_factory=lambda: np.zeros([0], bool)
  )
  vectors: Any = None

  def __len__(self) -> int:
    return int(np.sum(self.is_there))

  @property
  def names(self) -> set[str]:
    """Classes that have an image."""
    there = np.unique(self.labels[self.is_there])
    return {self.class_names[label] for label in there}

  @property
  def largest_class(self) -> int:
    """Images of the largest class."""
    return int(np.bincount(self.labels[self.is_there]).max(initial=0))

  def list_new(
    self, folder: str, model: saved_models.Model, *, on_bad_example: str
  ) -> New:
    """Lists the images of a folder that are not in the index.

    Args:
      folder: With one sub-folder a class.
      model: What embeds them.
      on_bad_example: One of `bad_examples.POLICIES`.

    Raises:
      FieldError: If the folder has none.
    """
    listed, source = image_sources.open_folder(
      folder,
      model.image_shape,
      on_bad_example=on_bad_example,
      name="gallery",
      for_pairs=False,
    )
    there = {self.paths[row] for row in np.flatnonzero(self.is_there)}
    rows = [
      row
      for row, path in enumerate(listed.paths)
      if not there or os.path.realpath(path) not in there
    ]
    paths = tuple(listed.paths[row] for row in rows)
    source = image_sources.open_files(
      source.description,
      paths,
      source.labels[rows],
      model.image_shape,
      on_bad_example=on_bad_example,
      notes=source.notes,
    )
    return New(source, paths, listed.class_names)

  def add_new(self, model: saved_models.Model, new: New) -> int:
    """Embeds and adds images, and returns how many could be read."""
    if not new.paths:
      return 0
    found = embed(model, new.source, new.paths)
    # A file's paths mean the same in every working directory.
    paths = [*map(os.path.realpath, found.paths)] if self.model else found.paths
    names = [new.class_names[label] for label in found.labels]
    self.add(found.embeddings, names, paths)
    return len(paths)

  def add(
    self,
    embeddings: np.ndarray,
    names: Sequence[str],
    paths: Sequence[str],
  ) -> None:
    """Adds images.

    Args:
      embeddings: `[m, dim]`, of length 1.
      names: Class of each, `[m]`.
      paths: Path of each, `[m]`.
    """
    known = {name: label for label, name in enumerate(self.class_names)}
    for name in names:
      if name not in known:
        known[name] = len(self.class_names)
        self.class_names.append(name)
    added = np.array([known[name] for name in names], np.int32)
    self.labels = np.append(self.labels, added)
    self.paths += paths
    self.is_there = np.append(self.is_there, np.ones(len(paths), bool))
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
    gone = self.is_there & np.isin(
      self.labels, [self.class_names.index(name) for name in names]
    )
    self.is_there &= ~gone
    if gone.any():
      self._embeddings()[gone] = 0
    for row in np.flatnonzero(gone):
      self.paths[row] = self.class_names[self.labels[row]] = ""
    num_removed = len(self.paths) - len(self)
    most = 0 if self.kind == EXACT else _MAX_REMOVED * len(self.paths)
    if num_removed > most:
      self._rebuild()
    return int(np.sum(gone))

  def _rebuild(self) -> None:
    """Leaves out what was removed."""
    rows = np.flatnonzero(self.is_there)
    vectors = _create(self.kind, self.vectors.d)
    _add(vectors, self._embeddings()[rows])
    kept, labels = np.unique(self.labels[rows], return_inverse=True)
    self.class_names = [self.class_names[label] for label in kept]
    self.vectors, self.labels = vectors, labels.astype(np.int32)
    self.paths = [self.paths[row] for row in rows]
    self.is_there = np.ones(len(rows), bool)

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
      count: How many for each, at most.
      exact: Whether to go by all images where there is a graph.

    Returns:
      Similarities, descending, and rows, `[q, min(count, n)]`; -inf and -1
      where a graph found no more.
    """
    queries = np.asarray(queries, np.float32)
    count = min(count, len(self))
    selector = None
    if not self.is_there.all():
      # An array that faiss reads while it searches.
      bits = np.packbits(self.is_there, bitorder="little")
      selector = faiss.IDSelectorBitmap(
        len(self.is_there), faiss.swig_ptr(bits)
      )
    if self.kind == HNSW and not exact:
      options = faiss.SearchParametersHNSW(
        sel=selector, efSearch=max(_SEARCH, 2 * count)
      )
      found = self.vectors.search(queries, count, params=options)
    else:
      flat = self.vectors if self.kind == EXACT else self.vectors.storage
      options = selector and faiss.SearchParameters(sel=selector)
      found = flat.search(queries, count, params=options)
    similarities, rows = found
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
    """Writes the index, whole or not at all, in place of an earlier one.

    Raises:
      FieldError: If it cannot be written.
    """
    about = {
      "version": _VERSION,
      "model": self.model,
      "kind": self.kind,
      "class_names": self.class_names,
      "paths": self.paths,
    }
    try:
      with (
        whole_files.replacing(path) as partial,
        zipfile.ZipFile(partial, "w") as archive,
      ):
        archive.writestr("about.json", json.dumps(about))
        for name in ("labels", "is_there"):
          with archive.open(f"{name}.npy", "w") as file:
            np.save(file, getattr(self, name))
        with archive.open("vectors", "w", force_zip64=True) as file:
          faiss.write_index(self.vectors, faiss.PyCallbackIOWriter(file.write))
    except OSError as error:
      raise errors.FieldError(
        "index", "be a file that can be written", f"{path}: {error.strerror}"
      ) from error


def read(path: str | os.PathLike[str], model: str) -> GalleryIndex:
  """Reads an index.

  Args:
    path: The file.
    model: Digest of the model that it must be of.

  Raises:
    FieldError: If it is no index, or another model's.
  """
  path = pathlib.Path(path)
  must = "be a file that this program wrote"
  try:
    with zipfile.ZipFile(path) as archive:
      about = json.loads(archive.read("about.json"))
      if about["version"] != _VERSION:
        raise errors.FieldError("index", f"{must}, of this version", path)
      if about["model"] != model:
        raise errors.FieldError(
          "index", "be of the same model as saved_model", f"{path} of another"
        )
      arrays = []
      for name in ("labels", "is_there"):
        with archive.open(f"{name}.npy") as file:
          arrays.append(np.load(file, allow_pickle=False))
      with archive.open("vectors") as file:
        vectors = faiss.read_index(faiss.PyCallbackIOReader(file.read))
  except errors.FieldError:
    raise
  # A damaged file may look like anything, to faiss too.
  except Exception as error:
    raise errors.FieldError(
      "index", must, f"{path}: {errors.first_line(error)}"
    ) from error
  labels, is_there = arrays
  return GalleryIndex(
    *(model, about["kind"], about["class_names"], labels),
    *(about["paths"], is_there, vectors),
  )


def embed(
  model: saved_models.Model,
  source: image_sources.ImageSource,
  paths: tuple[pathlib.Path, ...],
) -> Embedded:
  """Embeds the images of a source, those that can be read.

  Args:
    model: The model.
    source: The images.
    paths: Path of each.

  Raises:
    DataError: If none can be read, or one that is not to be skipped.
  """
  embeddings, rows = image_sources.embed_rows(
    model.embed, source, np.arange(len(paths))
  )
  if not rows.size:
    raise errors.DataError(
      f"{source.description} must have one that can be read, found none of"
      f" {len(paths):,}."
    )
  embeddings = embeddings.astype(np.float64)
  norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
  embeddings /= np.where(norms > 0, norms, 1.0)
  return Embedded(
    [os.fspath(paths[row]) for row in rows], embeddings, source.labels[rows]
  )


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
