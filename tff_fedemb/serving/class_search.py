"""The most similar class of a gallery for each query, and the next one.

A class is as similar as the nearest of its images, or as the mean of them: the
sum of their unit embeddings, by its direction. A query that is an image of the
gallery itself is compared with the others alone. Similarities are of double
precision, as those are that thresholds come from: in single precision, all
images of a narrow cone are alike.
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

# Number of images that a graph is asked for. The runner-up may not be among
# them.
_MAX_NEIGHBOURS = 100
# The columns of a result, in their order.
_COLUMNS = [
  "nearest_class",
  "similarity",
  "nearest_image",
  "runner_up",
  "runner_up_similarity",
]
# Rows and columns of a matrix, each `[q]`.
_Places = tuple[np.ndarray, np.ndarray]
# Number of similarities that are computed at once.
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
    queries: Unit embeddings, float64 `[q, dim]`.
    paths: Files of the queries, `[q]`; an image of the gallery from the same
      file is not compared with the query.
    compared: `identification.NEAREST` or `identification.MEAN`.

  Returns:
    A row for each query: `nearest_class`, its `similarity` in [-1, 1],
    `nearest_image` of that class, and `runner_up`, the next class, with
    `runner_up_similarity`; None and NaN where there is no other.

  Raises:
    errors.FieldError: If there is nothing to compare a query with.
  """
  places = [os.path.realpath(path) for path in paths]
  if compared == identification.MEAN:
    found = _by_mean(index, queries, places)
  else:
    found = _by_nearest(index, queries, places)
  found = found[_COLUMNS]
  alone = np.flatnonzero(found["similarity"] == -np.inf)
  if len(alone):
    must = "have others than the query"
    raise errors.FieldError("gallery", must, paths[alone[0]])
  for column in ("similarity", "runner_up_similarity"):
    found[column] = found[column].clip(upper=1.0)
  has_other = found["runner_up_similarity"] > -np.inf
  columns = ["runner_up", "runner_up_similarity"]
  found[columns] = found[columns].where(has_other)
  return found


def _by_nearest(
  index: gallery_index.GalleryIndex,
  queries: np.ndarray,
  places: Sequence[str],
) -> pd.DataFrame:
  """Finds classes by their nearest image.

  Enough images are asked for that one of another class is among them: as many
  as the largest class and the most frequent file have together, and one. A
  graph is asked for at most 100, so it may find no runner-up.

  Args:
    index: The gallery.
    queries: Unit embeddings, `[q, dim]`.
    places: Real paths of their files, `[q]`.

  Returns:
    The columns of `find`; similarities are -inf where there is nothing.
  """
  files = index.images["path"]
  classes = index.images["name"]
  # At most this many images are the query itself or of the nearest class, so
  # one more is the runner-up.
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
  first, second, found = _find_two(similarities, names)
  found["nearest_image"] = images[first]
  for column, place in (
    ("similarity", first),
    ("runner_up_similarity", second),
  ):
    embeddings = index.embeddings[index.places[rows[place]]]
    cosines = np.sum(pairs.normalize(embeddings) * queries, axis=1)
    found[column] = np.where(found[column] > -np.inf, cosines, -np.inf)
  return found


def _find_two(
  similarities: np.ndarray,
  classes: np.ndarray,
) -> tuple[_Places, _Places, pd.DataFrame]:
  """Finds the most similar class in each row, and the next one.

  Args:
    similarities: `[q, n]`; those of the most similar class become -inf.
    classes: Class of each, `[q, n]`.

  Returns:
    Rows and columns of the most similar, and of the next one; and the columns
    of `find` but for `nearest_image`.
  """
  rows = np.arange(len(similarities))
  first = (rows, similarities.argmax(axis=1))
  found = pd.DataFrame()
  found["nearest_class"] = classes[first]
  found["similarity"] = similarities[first]
  similarities[classes == classes[first][:, np.newaxis]] = -np.inf
  second = (rows, similarities.argmax(axis=1))
  found["runner_up"] = classes[second]
  found["runner_up_similarity"] = similarities[second]
  return first, second, found


def _by_mean(
  index: gallery_index.GalleryIndex,
  queries: np.ndarray,
  places: Sequence[str],
) -> pd.DataFrame:
  """Finds classes by the mean of their images.

  Queries are compared in blocks, so that no more than about four million
  similarities are in memory at once. Arguments and result are those of
  `_by_nearest`.
  """
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

  A mean is a sum of unit embeddings, scaled to norm one. It is computed once
  for the gallery, and again without an image that is the query itself.

  Attributes:
    names: Name of each class, `[c]`.
  """

  def __init__(self, index: gallery_index.GalleryIndex):
    """Computes the means.

    Args:
      index: The gallery.
    """
    self._index = index
    self._files = index.images["path"].to_numpy()
    self._classes, self.names = pd.factorize(index.images["name"].to_numpy())
    by_class = np.argsort(self._classes, kind="stable")
    ends = np.cumsum(np.bincount(self._classes))
    self._rows_of_class = np.split(by_class, ends[:-1])
    ones = np.ones(len(self._files), np.float32)
    shape = (len(self.names), len(index.embeddings))
    members = sparse.csr_array((ones, (self._classes, index.places)), shape)
    sums = members @ index.embeddings
    self._means = pairs.normalize(sums)

  def find(self, queries: np.ndarray, places: Sequence[str]) -> pd.DataFrame:
    """Finds the columns of the module's `find` for some queries.

    Args:
      queries: Unit embeddings, `[q, dim]`.
      places: Real paths of their files, `[q]`.

    Returns:
      A row for each query, with the columns of the module's `find`.
    """
    if self._index.kind == gallery_index.HNSW:
      similarities, classes = self._among_nearest(queries)
    else:
      similarities = queries @ self._means.T
      classes = np.broadcast_to(np.arange(len(self.names)), similarities.shape)
    for query, label in self._find_own(places):
      without = self._without(places[query], label, queries[query])
      similarities[query, classes[query] == label] = without
    _, _, found = _find_two(similarities, classes)
    nearest = map(self._nearest_image, queries, found["nearest_class"], places)
    found["nearest_image"] = list(nearest)
    for column in ("nearest_class", "runner_up"):
      found[column] = self.names[found[column]]
    return found

  def _among_nearest(
    self,
    queries: np.ndarray,
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns similarities with classes of the nearest images, and these.

    Where there is a graph, only the classes of the 100 nearest images are
    compared. A class may be there several times.

    Args:
      queries: Unit embeddings, `[q, dim]`.

    Returns:
      Similarities with the means, and numbers of the classes, both `[q, n]`;
      similarities are -inf where the graph found no more.
    """
    _, rows = self._index.search(queries, _MAX_NEIGHBOURS)
    classes = self._classes[rows]
    similarities = np.einsum("qd,qnd->qn", queries, self._means[classes])
    similarities[rows < 0] = -np.inf
    return similarities, classes

  def _find_own(self, places: Sequence[str]) -> np.ndarray:
    """Returns pairs of a query that is in the gallery, and a class of it.

    Args:
      places: Real paths of the queries, `[q]`.

    Returns:
      Rows of a query's number and a class's number, int64 `[p, 2]`.
    """
    images = pd.DataFrame({"place": self._files, "label": self._classes})
    queries = pd.DataFrame({"place": places, "query": range(len(places))})
    images = images[images["place"].isin(queries["place"])]
    own = queries.merge(images.drop_duplicates(), on="place")
    return own[["query", "label"]].to_numpy()

  def _images_of(self, label: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns files and embeddings of the images of a class.

    Args:
      label: Number of the class.

    Returns:
      Paths `[n]`, and unit embeddings `[n, dim]`.
    """
    rows = self._rows_of_class[label]
    places = self._index.places[rows]
    return self._files[rows], self._index.embeddings[places]

  def _without(self, place: str, label: int, query: np.ndarray) -> float:
    """Returns a query's similarity with the mean of a class without a file.

    Args:
      place: Real path of the file to leave out.
      label: Number of the class.
      query: Unit embedding, `[dim]`.

    Returns:
      A cosine similarity; -inf if the class has no other file.
    """
    files, images = self._images_of(label)
    left = images[files != place]
    if not len(left):
      return -np.inf
    return float(pairs.normalize(left.sum(axis=0)) @ query)

  def _nearest_image(self, query: np.ndarray, label: int, place: str) -> str:
    """Returns the file of the image of a class that is nearest to a query.

    Args:
      query: Unit embedding, `[dim]`.
      label: Number of the class.
      place: Real path of the query, which does not count.
    """
    files, images = self._images_of(label)
    similarities = np.where(files == place, -np.inf, images @ query)
    return files[similarities.argmax()]
