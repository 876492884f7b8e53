"""A file of a large gallery: embeddings of known images, to be searched.

A search is exact, or goes by a graph of neighbours that finds most of the
nearest in a fraction of the time (HNSW: Malkov and Yashunin, "Efficient and
Robust Approximate Nearest Neighbor Search Using Hierarchical Navigable Small
World Graphs", IEEE TPAMI 2020). An image cannot be taken out of a graph: it is
built anew. Copies of an image are one point of it: they would be linked to each
other alone, and a search would not leave them.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Collection, Sequence
import contextlib
import dataclasses
import functools
import hashlib
import json
import os
from typing import Any
import zipfile

from etils import epy
import numpy as np

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import progress as progress_lib
from tff_fedemb import whole_files
from tff_fedemb.evaluation import pairs
from tff_fedemb.serving import image_sources

with epy.lazy_imports():
  import faiss
  import pandas as pd

EXACT = "exact"
HNSW = "hnsw"
KINDS = (EXACT, HNSW)

# Links of an image in a graph, and candidates that a search keeps.
_LINKS = 32
_SEARCH = 192
_BLOCK_ROWS = 10_000
# Recall is measured on this many queries, and nearest images of each.
_NUM_QUERIES = 200
_NUM_NEAREST = 10
# Largest difference in rounding between two searches.
_TIE = 1e-6
_VERSION = 5
_COLUMNS = ["name", "path", "entry", "digest"]
# Half as long as SHA-256, without known collisions.
_DIGEST = functools.partial(hashlib.blake2b, digest_size=16)


@dataclasses.dataclass(frozen=True)
class Changes:
  """Changes of a folder since an index was made of it.

  Attributes:
    new: Rows of the listing to embed and add.
    replaced: Entries of those whose file has other content than in the index.
    num_moved: Number of images of the index with a new path or class.
    gone: Entries of images of the index that the folder does not have any more.
  """

  new: list[int]
  replaced: list[str]
  num_moved: int
  gone: list[str]


@dataclasses.dataclass
class GalleryIndex:
  """A gallery, held in memory.

  Equal embeddings are stored once, so several rows may have the same place. An
  index without images has no `vectors`: add some before you search.

  Attributes:
    model: Digest of the model that embeds its images.
    kind: One of `KINDS`.
    images: Rows with `name`, the class of an image; `path`, its file; `entry`,
      its path in the gallery, which may be a link to the file; and `digest`,
      that of the file's content when it was added. The last two may be empty.
    vectors: Index of faiss, of each unit embedding once.
    places: Number of each row's embedding there, int64 `[n]`.
  """

  model: str
  kind: str
  images: pd.DataFrame = dataclasses.field(
    default_factory=lambda: pd.DataFrame([], columns=_COLUMNS, dtype=object)
  )
  vectors: Any = None
  places: np.ndarray = dataclasses.field(
    default_factory=lambda: np.zeros([0], np.int64)
  )

  def add(self, embeddings: np.ndarray, images: pd.DataFrame) -> None:
    """Adds images.

    An embedding that is there already is not stored again. An image of the same
    class and entry, of a file with other content now, is left out.

    Args:
      embeddings: `[m, dim]`, of length 1.
      images: As in the index, `m` rows.
    """
    embeddings = np.asarray(embeddings, np.float32)
    images = images.reindex(columns=_COLUMNS, fill_value="")
    is_new = _keys(self.images).isin(_keys(images[images["entry"] != ""]))
    self._leave_out(np.flatnonzero(is_new))
    self.images = pd.concat([self.images, images], ignore_index=True)
    if self.vectors is None:
      self.vectors = self._create(embeddings.shape[1])
    known = self.embeddings
    keys = [hash(row.tobytes()) for row in known]
    keys += [hash(row.tobytes()) for row in embeddings]
    # Numbers follow the first mention, so that known embeddings keep theirs.
    places = pd.factorize(np.array(keys))[0]
    is_first = ~pd.Series(places).duplicated().to_numpy()
    self.places = np.append(self.places, places[len(known) :])
    _add(self.vectors, embeddings, np.flatnonzero(is_first[len(known) :]))

  def embed(
    self,
    model: Callable[[np.ndarray], np.ndarray],
    gallery: image_sources.ImageSource,
    listed: pd.DataFrame,
  ) -> pd.DataFrame:
    """Embeds images of a folder and adds those that can be read.

    Args:
      model: Maps a batch of images to embeddings `[b, dim]`.
      gallery: The folder.
      listed: Rows of `list_images`, by their numbers there.

    Returns:
      The rows that were added.

    Raises:
      errors.DataError: As `image_sources.embed_rows`; if the index has images
        already, it is no error that none can be read.
    """
    embeddings, rows = image_sources.embed_rows(
      model,
      gallery,
      listed.index.to_numpy(),
      may_be_none=len(self.images) > 0,
    )
    if len(rows):
      self.add(pairs.normalize(embeddings), listed.loc[rows])
    return listed.loc[rows]

  def remove(self, names: Collection[str]) -> int:
    """Removes all images of some classes, and returns how many.

    Privacy:
      Their embeddings, paths and names are gone.

    Args:
      names: Classes, or texts of several with commas between.

    Returns:
      Number of images removed.

    Raises:
      errors.FieldError: If there is no such class.
    """
    known = set(self.images["name"])
    names = set(config_lib.split_words(names, known.__contains__))
    for name in names - known:
      raise errors.FieldError("remove", "be classes of the index", name)
    is_gone = self.images["name"].isin(list(names)).to_numpy()
    self._leave_out(np.flatnonzero(is_gone))
    return int(is_gone.sum())

  def forget(self, entries: Collection[str]) -> None:
    """Leaves out images by their entries.

    Args:
      entries: The entries.
    """
    is_gone = self.images["entry"].isin(list(entries)).to_numpy()
    self._leave_out(np.flatnonzero(is_gone))

  def follow(
    self,
    folder: str | os.PathLike[str],
    listed: pd.DataFrame,
    *,
    sync: bool = False,
  ) -> Changes:
    """Follows the files of a folder.

    An image whose file has other content is to be added anew, and stays until
    then. If the entry of an image is gone, and a new file has its content, the
    image gets the path, entry and class of that one.

    Args:
      folder: The folder.
      listed: All its images, as in the index.
      sync: Whether images that the folder does not have any more are left out.

    Returns:
      What changed. The rows in `new` are not added yet: see `embed`.
    """
    names = self.images["name"].to_numpy(copy=True)
    paths = self.images["path"].to_numpy(copy=True)
    entries = self.images["entry"].to_numpy(copy=True)
    digests = self.images["digest"].to_numpy()
    rows = {
      key: row for row, key in enumerate(zip(names, entries, strict=True))
    }
    keys = list(zip(listed["name"], listed["entry"], strict=True))
    not_listed = sorted(set(range(len(names))) - set(map(rows.get, keys)))
    missing = collections.defaultdict(list)
    for row in not_listed:
      if digests[row] and not os.path.exists(entries[row]):
        missing[digests[row]].append(row)
    new = []
    replaced = []
    moved = set()
    for number, (key, path, digest) in enumerate(
      zip(keys, listed["path"], listed["digest"], strict=True)
    ):
      place = rows.get(key)
      if place is None and missing[digest]:
        # If several files of that content moved, prefer one of the same class.
        place = max(missing[digest], key=lambda each: names[each] == key[0])
        missing[digest].remove(place)
        names[place], entries[place] = key
        paths[place] = path
        moved.add(place)
      elif place is None:
        new.append(number)
      elif not digest or digest != digests[place]:
        new.append(number)
        replaced.append(place)
      elif path != paths[place]:
        # A link leads to another file of the same content.
        paths[place] = path
        moved.add(place)
    root = os.path.join(os.path.realpath(folder), "")
    gone = []
    for row in not_listed:
      if row not in moved and entries[row].startswith(root):
        gone.append(row)
    changes = Changes(
      new, list(entries[replaced]), len(moved), list(entries[gone])
    )
    self.images = self.images.assign(name=names, path=paths, entry=entries)
    self._leave_out(gone if sync else [])
    return changes

  def in_several_classes(self) -> list[str]:
    """Returns paths of images whose content is also in another class.

    Images without a digest are not compared.

    Returns:
      Paths, those of the same content together.
    """
    known = self.images[self.images["digest"] != ""]
    copies = known[known.duplicated("digest", keep=False)]
    copies = copies.sort_values("digest", kind="stable")
    num_classes = copies.groupby("digest")["name"].transform("nunique")
    return copies["path"][num_classes > 1].tolist()

  def _leave_out(self, rows: Sequence[int] | np.ndarray) -> None:
    """Leaves some rows out, and embeddings that no other row has.

    The index of faiss is built anew, since a graph cannot forget an image.

    Args:
      rows: Numbers of the rows.
    """
    if len(rows):
      is_kept = ~np.isin(np.arange(len(self.images)), rows)
      images = self.images[is_kept]
      embeddings = self.embeddings[self.places[is_kept]]
      self.images = images[:0]
      self.places = self.places[:0]
      self.vectors = None
      self.add(embeddings, images)

  @property
  def _flat(self) -> Any:
    """Index of faiss that compares a query with all embeddings."""
    return self.vectors if self.kind == EXACT else self.vectors.storage

  @property
  def embeddings(self) -> np.ndarray:
    """Each unit embedding once, in the memory of the index of faiss.

    Returns:
      float32 `[m, dim]`; the array is valid until images are added or left out.
    """
    flat = faiss.downcast_index(self._flat)
    if not flat.ntotal:
      return np.zeros([0, flat.d], np.float32)
    numbers = faiss.rev_swig_ptr(flat.get_xb(), flat.ntotal * flat.d)  # type: ignore[attr-defined]
    return numbers.reshape(flat.ntotal, flat.d)

  def _create(self, dim: int) -> Any:
    """Creates an empty index of faiss.

    Args:
      dim: Number of dimensions of an embedding.

    Returns:
      An index by inner products, which are cosines for unit embeddings.
    """
    if self.kind == EXACT:
      return faiss.IndexFlatIP(dim)
    return faiss.IndexHNSWFlat(dim, _LINKS, faiss.METRIC_INNER_PRODUCT)

  def search(
    self,
    queries: np.ndarray,
    count: int,
    *,
    exact: bool = False,
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
    total = self.vectors.ntotal
    options = None
    searched = self._flat
    if self.kind == HNSW and not exact:
      options = faiss.SearchParametersHNSW(efSearch=max(_SEARCH, 2 * count))  # type: ignore[attr-defined]
      searched = self.vectors
    similarities, places = searched.search(
      np.asarray(queries, np.float32), min(count, total), params=options
    )
    similarities = np.where(places < 0, -np.inf, similarities)
    if total == len(self.images):
      return similarities, places
    return self._expand(similarities, places, count)

  def _expand(
    self,
    similarities: np.ndarray,
    places: np.ndarray,
    count: int,
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns similarities and rows of images with the embeddings found.

    Args:
      similarities: Similarities of embeddings, descending, `[q, k]`.
      places: Numbers of the embeddings, `[q, k]`; -1 where there is none.
      count: Largest number of images for each query.

    Returns:
      Similarities and rows of images, `[q, count]`; -inf and -1 where there are
      no more.
    """
    by_place = np.argsort(self.places, kind="stable")
    sizes = np.bincount(self.places)
    starts = np.cumsum(sizes) - sizes
    rows = np.full([len(places), count], -1)
    expanded = np.full(rows.shape, -np.inf, similarities.dtype)
    for query, found in enumerate(places):
      found = found[found >= 0]
      copies = sizes[found]
      which = np.repeat(np.arange(len(found)), copies)[:count]
      first_copies = np.cumsum(copies) - copies
      number = np.arange(len(which)) - first_copies[which]
      rows[query, : len(which)] = by_place[starts[found[which]] + number]
      expanded[query, : len(which)] = similarities[query, which]
    return expanded, rows

  def measure_recall(self, queries: np.ndarray) -> float | None:
    """Measures the share of the ten nearest images that a graph finds.

    Any image that is as near as the last of the ten counts as one of them.

    Args:
      queries: Unit embeddings `[q, dim]`, of which at most 200 are searched.

    Returns:
      In [0, 1]; None for an exact index.
    """
    if self.kind == EXACT:
      return None
    some = queries[:: -(-len(queries) // _NUM_QUERIES)]
    found, _ = self.search(some, _NUM_NEAREST)
    nearest, _ = self.search(some, _NUM_NEAREST, exact=True)
    return float(np.mean(found >= nearest[:, -1:] - _TIE))

  def write(self, path: str | os.PathLike[str]) -> None:
    """Writes the index, whole or not at all; replaces an earlier one.

    Privacy:
      The file has the embeddings, paths and class names of the gallery: keep it
      like the images.

    Args:
      path: The file, a ZIP archive, in a folder that exists.

    Raises:
      OSError: If the file cannot be written.
    """
    about = {
      "version": _VERSION,
      "model": self.model,
      "kind": self.kind,
      "images": self.images.to_dict("list"),
      "places": self.places.tolist(),
    }
    with (
      whole_files.replacing(path) as partial,
      zipfile.ZipFile(partial, "w") as archive,
    ):
      archive.writestr("about.json", json.dumps(about))
      with archive.open("vectors", "w", force_zip64=True) as file:
        faiss.write_index(self.vectors, faiss.PyCallbackIOWriter(file.write))  # type: ignore[attr-defined]


def open_folder(
  folder: str,
  image_shape: tuple[int, ...],
  *,
  on_bad_example: str,
) -> image_sources.ImageSource:
  """Opens a gallery, a folder with one sub-folder of images a class.

  Args:
    folder: The folder.
    image_shape: See `image_sources.open_folder`.
    on_bad_example: See `image_sources.open_folder`.

  Returns:
    The images, not yet read.

  Raises:
    errors.FieldError: If there is no such folder, or too little in it.
  """
  return image_sources.open_folder(
    folder,
    image_shape,
    on_bad_example=on_bad_example,
    name="gallery",
    for_pairs=False,
  )


def _keys(images: pd.DataFrame) -> pd.MultiIndex:
  """Class and entry of images, which an image is known by in an index."""
  return pd.MultiIndex.from_frame(images[["name", "entry"]])


def list_images(
  gallery: image_sources.ImageSource,
  *,
  with_digests: bool,
) -> pd.DataFrame:
  """Lists the images of a folder, as in an index.

  Args:
    gallery: The folder, as `open_folder` returns it.
    with_digests: Whether to read all files for their digests; these are empty
      otherwise, and for files that cannot be read.

  Returns:
    A row for each image: `name` of its class, `path`, and `digest`, a BLAKE2b
    digest of 32 hexadecimal digits.
  """
  names = [gallery.class_names[label] for label in gallery.labels.tolist()]
  # A path means the same in every working directory.
  paths = [os.path.realpath(path) for path in gallery.paths]
  root = os.path.realpath(gallery.facts["image_folder"])
  entries = [os.path.join(root, *path.parts[-2:]) for path in gallery.paths]
  values = {"name": names, "path": paths, "entry": entries}
  listed = pd.DataFrame(values, dtype=object)
  digests = [""] * len(paths)
  if with_digests:
    bar = progress_lib.create_bar("Checking", unit="images", items=paths)
    for number, path in enumerate(bar):
      # An unreadable file is reported later, when it is embedded.
      with contextlib.suppress(OSError), open(path, "rb") as file:
        digests[number] = hashlib.file_digest(file, _DIGEST).hexdigest()
  return listed.assign(digest=np.array(digests, object))


def read(path: str | os.PathLike[str], model: str) -> GalleryIndex:
  """Reads an index.

  Args:
    path: The file.
    model: Digest of the model that must have embedded its images.

  Returns:
    The index, held in memory.

  Raises:
    errors.FieldError: If it is no index, or of another model.
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
    places = np.array(about["places"], np.int64)
    index = GalleryIndex(about["model"], about["kind"], images, vectors, places)
  if index.model != model:
    raise errors.FieldError(
      "index", "be of the same model as saved_model", f"{path} of another"
    )
  return index


def _add(vectors: Any, embeddings: np.ndarray, rows: np.ndarray) -> None:
  """Adds some rows of embeddings to an index of faiss.

  Args:
    vectors: The index, changed in place.
    embeddings: float32 `[n, dim]`.
    rows: Numbers of the rows to add.
  """
  with progress_lib.create_bar(
    "Indexing", unit="images", total=len(rows)
  ) as progress:
    for start in range(0, len(rows), _BLOCK_ROWS):
      some = embeddings[rows[start : start + _BLOCK_ROWS]]
      vectors.add(some)
      progress.update(len(some))
