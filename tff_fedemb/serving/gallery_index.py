"""A file of a large gallery: embeddings of known images, to be searched.

Exact, or by a graph of neighbours that finds most of the nearest in a fraction
of the time (HNSW: Malkov and Yashunin, "Efficient and Robust Approximate
Nearest Neighbor Search Using Hierarchical Navigable Small World Graphs", IEEE
TPAMI 2020). A graph cannot lose an image: where some are removed, it is built
anew.
"""

from __future__ import annotations

from collections.abc import Collection
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

with epy.lazy_imports():
  import faiss
  import pandas as pd

EXACT, HNSW = "exact", "hnsw"
KINDS = (EXACT, HNSW)

# A graph has links of an image, and images that a search keeps in sight.
_LINKS, _SEARCH = 32, 192
_BLOCK_ROWS = 10_000
# Recall is measured on so many queries, and nearest images of each.
_NUM_QUERIES, _NUM_NEAREST = 200, 10
_VERSION = 3


@dataclasses.dataclass
class GalleryIndex:
  """A gallery, held in memory.

  Attributes:
    model: Digest of the model that embeds its images.
    kind: One of `KINDS`.
    images: Rows with `name`, the class of an image, and `path`, its file when
      it was added.
    vectors: Index of faiss, of a unit embedding for each row.
  """

  model: str
  kind: str
  images: pd.DataFrame = dataclasses.field(
    default_factory=lambda: pd.DataFrame([], columns=["name", "path"])
  )
  vectors: Any = None

  def add(self, embeddings: np.ndarray, images: pd.DataFrame) -> None:
    """Adds images.

    Args:
      embeddings: `[m, dim]`, of length 1.
      images: As of the index, `m` rows.
    """
    self.images = pd.concat([self.images, images], ignore_index=True)
    if self.vectors is None:
      self.vectors = self._create(embeddings.shape[1])
    _add(self.vectors, np.asarray(embeddings, np.float32))

  def remove(self, names: Collection[str]) -> int:
    """Removes all images of some classes, and returns how many.

    Privacy:
      Their embeddings, paths and names are gone.

    Raises:
      FieldError: If there is no such class.
    """
    for name in set(names) - set(self.images["name"]):
      raise errors.FieldError("remove", "be classes of the index", name)
    is_kept = ~self.images["name"].isin(list(names)).to_numpy()
    if not is_kept.all():
      flat = faiss.downcast_index(self._flat)
      embeddings = faiss.rev_swig_ptr(flat.get_xb(), flat.ntotal * flat.d)  # type: ignore[attr-defined]
      kept = embeddings.reshape(flat.ntotal, flat.d)[is_kept]
      self.vectors = self._create(flat.d)
      _add(self.vectors, kept)
      self.images = self.images[is_kept].reset_index(drop=True)
    return int(np.sum(~is_kept))

  @property
  def _flat(self) -> Any:
    """Index of faiss that compares with all."""
    return self.vectors if self.kind == EXACT else self.vectors.storage

  def _create(self, dim: int) -> Any:
    if self.kind == EXACT:
      return faiss.IndexFlatIP(dim)
    return faiss.IndexHNSWFlat(dim, _LINKS, faiss.METRIC_INNER_PRODUCT)

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
    count = min(count, len(self.images))
    options, searched = None, self._flat
    if self.kind == HNSW and not exact:
      options = faiss.SearchParametersHNSW(efSearch=max(_SEARCH, 2 * count))  # type: ignore[attr-defined]
      searched = self.vectors
    similarities, rows = searched.search(
      np.asarray(queries, np.float32), count, params=options
    )
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
        faiss.write_index(self.vectors, faiss.PyCallbackIOWriter(file.write))  # type: ignore[attr-defined]


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
      vectors = faiss.read_index(faiss.PyCallbackIOReader(file.read))  # type: ignore[attr-defined]
    images = pd.DataFrame(about["images"], dtype=object)
    index = GalleryIndex(about["model"], about["kind"], images, vectors)
  if index.model != model:
    raise errors.FieldError(
      "index", "be of the same model as saved_model", f"{path} of another"
    )
  return index


def _add(vectors: Any, embeddings: np.ndarray) -> None:
  with progress_lib.create_bar(
    "Indexing", unit="images", total=len(embeddings)
  ) as progress:
    for start in range(0, len(embeddings), _BLOCK_ROWS):
      some = np.ascontiguousarray(embeddings[start : start + _BLOCK_ROWS])
      vectors.add(some)
      progress.update(len(some))
