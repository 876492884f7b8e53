"""The most similar class of a gallery for each query, and the next one.

A class is as similar as the nearest of its images, or as the mean of them: the
sum of their unit embeddings, by its direction. A query that is an image of the
gallery itself is compared with the others alone.
"""

from __future__ import annotations

from collections.abc import Sequence
import os
import pathlib

from etils import epy
import numpy as np
from scipy import sparse

from tff_fedemb import errors
from tff_fedemb.evaluation import identification
from tff_fedemb.evaluation import pairs
from tff_fedemb.serving import gallery_index

with epy.lazy_imports():
  import pandas as pd

# Images that a graph is asked for: the runner-up may lie beyond.
_MAX_NEIGHBOURS = 100
# The columns of a result, in their order.
_COLUMNS = [
  "nearest_class",
  "similarity",
  "nearest_image",
  "runner_up",
  "runner_up_similarity",
]
# Similarities that are computed at once.
_BLOCK_SIZE = 2**22


def find(
  index: gallery_index.GalleryIndex,
  queries: np.ndarray,
  paths: Sequence[pathlib.Path],
  compared: str,
) -> pd.DataFrame:
  """Finds the most similar class for each query.

  Args:
    index: The gallery; classes are names.
    queries: Unit embeddings, `[q, dim]`.
    paths: Their files.
    compared: One of `identification.NEAREST` and `MEAN`.

  Returns:
    A row for each query: `nearest_class`, its `similarity`, `nearest_image` of
    that class, and `runner_up`, the next class, with `runner_up_similarity`;
    None and NaN where there is no other.

  Raises:
    FieldError: If there is nothing to compare a query with.
  """
  places = [os.path.realpath(path) for path in paths]
  search = _by_mean if compared == identification.MEAN else _by_nearest
  found = search(index, queries, places)[_COLUMNS]
  alone = np.flatnonzero(found["similarity"] == -np.inf)
  if len(alone):
    must = "have others than the query"
    raise errors.FieldError("gallery", must, paths[alone[0]])
  has_other = found["runner_up_similarity"] > -np.inf
  columns = ["runner_up", "runner_up_similarity"]
  found[columns] = found[columns].where(has_other)
  return found


def _by_nearest(
  index: gallery_index.GalleryIndex,
  queries: np.ndarray,
  places: Sequence[str],
) -> pd.DataFrame:
  """As `find`, by the nearest image of a class."""
  files = index.images["path"]
  classes = index.images["name"]
  # So many may be the query itself or of the nearest class, and one more is the
  # runner-up.
  most_of_file = int(files.value_counts().max())
  most_of_class = int(classes.value_counts().max())
  count = most_of_file + most_of_class + 1
  if index.kind == gallery_index.HNSW:
    count = min(count, _MAX_NEIGHBOURS)
  similarities, rows = index.search(queries, count)
  images = files.to_numpy()[rows]
  names = classes.to_numpy()[rows]
  is_query = images == np.array(places, object)[:, np.newaxis]
  similarities[is_query] = -np.inf
  first, found = _find_two(similarities, names)
  found["nearest_image"] = images[first]
  return found


def _find_two(
  similarities: np.ndarray,
  classes: np.ndarray,
) -> tuple[tuple[np.ndarray, np.ndarray], pd.DataFrame]:
  """Finds the most similar class in each row, and the next one.

  Args:
    similarities: `[q, n]`; those of the most similar class become -inf.
    classes: Class of each, `[q, n]`.

  Returns:
    Row and column of the most similar, and the columns of `find` but for
    `nearest_image`.
  """
  first = (np.arange(len(similarities)), similarities.argmax(axis=1))
  nearest = classes[first]
  similarity = similarities[first]
  similarities[classes == nearest[:, np.newaxis]] = -np.inf
  second = (first[0], similarities.argmax(axis=1))
  found = {
    "nearest_class": nearest,
    "similarity": similarity,
    "runner_up": classes[second],
    "runner_up_similarity": similarities[second],
  }
  return first, pd.DataFrame(found)


def _by_mean(
  index: gallery_index.GalleryIndex,
  queries: np.ndarray,
  places: Sequence[str],
) -> pd.DataFrame:
  """As `find`, by the mean of a class's images."""
  means = _Means(index)
  width = len(means.names)
  if index.kind == gallery_index.HNSW:
    width = _MAX_NEIGHBOURS * queries.shape[1]
  step = max(1, _BLOCK_SIZE // width)
  parts = []
  for start in range(0, len(queries), step):
    some = slice(start, start + step)
    parts.append(means.find(queries[some], places[some]))
  return pd.concat(parts, ignore_index=True)


class _Means:
  """The means of all classes.

  Attributes:
    names: Name of each class.
  """

  def __init__(self, index: gallery_index.GalleryIndex):
    self._index = index
    self._files = index.images["path"].to_numpy()
    self._classes, self.names = pd.factorize(index.images["name"].to_numpy())
    self._by_class = np.argsort(self._classes, kind="stable")
    self._ends = np.cumsum(np.bincount(self._classes))
    members = sparse.csr_array(
      (np.ones(len(self._files), np.float32), (self._classes, index.places)),
      shape=(len(self.names), len(index.embeddings)),
    )
    self._sums = members @ index.embeddings
    self._means = pairs.normalize(self._sums).astype(np.float32)

  def find(self, queries: np.ndarray, places: Sequence[str]) -> pd.DataFrame:
    """As `find` of the module."""
    queries = queries.astype(np.float32)
    if self._index.kind == gallery_index.HNSW:
      similarities, classes = self._among_nearest(queries)
    else:
      similarities = queries @ self._means.T
      classes = np.broadcast_to(np.arange(len(self.names)), similarities.shape)
    for query, label in self._find_own(places):
      without = self._without(places[query], label, queries[query])
      similarities[query, classes[query] == label] = without
    _, found = _find_two(similarities, classes)
    found["nearest_image"] = list(
      map(self._nearest_image, queries, found["nearest_class"], places)
    )
    for column in ("nearest_class", "runner_up"):
      found[column] = self.names[found[column]]
    return found

  def _among_nearest(
    self,
    queries: np.ndarray,
  ) -> tuple[np.ndarray, np.ndarray]:
    """Similarities with the classes of the nearest images, and these."""
    _, rows = self._index.search(queries, _MAX_NEIGHBOURS)
    classes = self._classes[rows]
    similarities = np.einsum("qd,qnd->qn", queries, self._means[classes])
    similarities[rows < 0] = -np.inf
    return similarities, classes

  def _find_own(self, places: Sequence[str]) -> np.ndarray:
    """Queries that are images of the gallery, each with one of its classes."""
    images = pd.DataFrame({"place": self._files, "label": self._classes})
    queries = pd.DataFrame({"place": places, "query": range(len(places))})
    images = images[images["place"].isin(queries["place"])]
    own = queries.merge(images.drop_duplicates(), on="place")
    return own[["query", "label"]].to_numpy()

  def _images_of(self, label: int) -> tuple[np.ndarray, np.ndarray]:
    """Files and embeddings of the images of a class."""
    start = self._ends[label - 1] if label else 0
    rows = self._by_class[start : self._ends[label]]
    return self._files[rows], self._index.embeddings[self._index.places[rows]]

  def _without(self, place: str, label: int, query: np.ndarray) -> float:
    """Similarity of a query with the mean of a class without a file."""
    files, images = self._images_of(label)
    left = images[files != place]
    if not len(left):
      return -np.inf
    return float(pairs.normalize(left.sum(axis=0)) @ query)

  def _nearest_image(self, query: np.ndarray, label: int, place: str) -> str:
    """File of the image of a class that is nearest to a query."""
    files, images = self._images_of(label)
    similarities = np.where(files == place, -np.inf, images @ query)
    return files[similarities.argmax()]
