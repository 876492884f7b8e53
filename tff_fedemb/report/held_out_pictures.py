"""Held-out images as a run's model sees them: neighbours, errors, a map."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import io
import itertools
import operator
from typing import Any

from etils import epy
import numpy as np
from PIL import Image

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.data import pipelines
from tff_fedemb.evaluation import identification
from tff_fedemb.evaluation import recognition
from tff_fedemb.evaluation import similarities
from tff_fedemb.evaluation import verification
from tff_fedemb.program import run_directory
from tff_fedemb.report import run_files
from tff_fedemb.run import task as task_lib
from tff_fedemb.serving import image_sources
from tff_fedemb.serving import saved_models

with epy.lazy_imports():
  from sklearn import decomposition
  from sklearn import manifold

_SPLIT = "test"
_NUM_QUERIES = 12
_NUM_NEIGHBOURS = 5
_NUM_HARD = 8
_NUM_MAP_CLASSES = 8
_NUM_MAP_IMAGES = 24
_PERPLEXITY = 30.0
_FIGURE_RATE = 1e-3
# A thumbnail's longer side in pixels, and its JPEG quality.
_MAX_SIDE = 64
_JPEG_QUALITY = 82


@dataclasses.dataclass(frozen=True)
class Options:
  """How the pictures of a report are made.

  Attributes:
    max_images: Held-out images that are embedded, a random sample.
    show_images_of_training_users: Whether images may be shown that may be of
      users who train.
    data: Where the data are, in place of what the run recorded.
    task: That of the run, if it is at hand.
  """

  max_images: int
  show_images_of_training_users: bool = False
  data: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  task: task_lib.Task | None = None


@dataclasses.dataclass(frozen=True)
class Thumbnail:
  """A picture; `data` is its data URI."""

  identifier: str
  width: int
  height: int
  data: str


class Thumbnails:
  """Small pictures of a page, each once: runs may show the same ones."""

  def __init__(self):
    self._by_data: dict[str, Thumbnail] = {}

  def add(self, image: np.ndarray) -> str:
    """Takes an image, uint8 `[height, width, channels]`; returns its name."""
    picture = Image.fromarray(image[..., 0] if image.shape[2] == 1 else image)
    # Keeps the proportions, and what is small as it is.
    picture.thumbnail((_MAX_SIDE, _MAX_SIDE))
    data = _encode(picture)
    new = Thumbnail(f"t{len(self._by_data)}", *picture.size, data)
    return self._by_data.setdefault(data, new).identifier

  @property
  def all(self) -> list[Thumbnail]:
    """Those that were taken."""
    return list(self._by_data.values())


def _encode(image: Image.Image) -> str:
  """The smaller of PNG and JPEG: drawings are small as PNG, photos are not."""
  encoded = {}
  for kind in ("png", "jpeg"):
    buffer = io.BytesIO()
    # PNG has no quality to give up, and takes no notice of it.
    image.save(buffer, format=kind, optimize=True, quality=_JPEG_QUALITY)
    encoded[kind] = buffer.getvalue()
  kind = min(encoded, key=lambda name: len(encoded[name]))
  return f"data:image/{kind};base64,{base64.b64encode(encoded[kind]).decode()}"


@dataclasses.dataclass(frozen=True)
class Pictures:
  """What a page shows of a run's held-out images.

  Images are known by their place among those that were embedded.

  Attributes:
    labels: Class of each image.
    names: What that is called.
    thumbnails: Names of the pictures that are shown, by image.
    num_classes: How many classes they are of.
    num_found: How many held-out images there are.
    are_images: Whether they are images, rather than vectors or sequences.
    has_images: Whether images are shown, or figures alone.
    nearest_is_right: Share of images whose nearest one is of their class.
    recall_again: Recall of these images at 1e-3, computed from the model.
    same: Similarities of pairs of one class.
    different: Similarities of pairs of two.
    gallery: For each of some images, the pairs with those nearest to it.
    false_accepts: Pairs of two classes that are most alike.
    false_rejects: Pairs of one class that are least alike.
    points: Points of the map: an image, its class's number there, and its
      places by t-SNE and by PCA, in [0, 1].
    groups: Names of the map's classes.
    explained: Share of the variance that the two directions of PCA hold.
    recognized: Figures of identification; none of too few classes.
    confusions: Images of the classes that are taken for each other most often,
      and the share of both classes' images that is taken for the other.
    classes: All classes of two images or more in a gallery with an image of
      each: name, number of other images, share of them whose most similar
      identity is the right one, and the class that most others are taken for,
      `None` if there are none.
    false_positive_rate: Share of strangers' images, where `recognized` has
      FNIR.
  """

  labels: list[int]
  names: list[str]
  thumbnails: Mapping[int, str]
  num_classes: int
  num_found: int
  are_images: bool
  has_images: bool
  nearest_is_right: float
  recall_again: float
  same: np.ndarray
  different: np.ndarray
  gallery: list[list[similarities.Pair]]
  false_accepts: list[similarities.Pair]
  false_rejects: list[similarities.Pair]
  points: list[tuple[Any, ...]]
  groups: list[str]
  explained: float
  recognized: tuple[recognition.Recognition, ...]
  confusions: list[tuple[int, int, float]]
  classes: list[tuple[str, int, float, str | None]]
  false_positive_rate: float = recognition.FALSE_POSITIVE_RATE

  @property
  def num_images(self) -> int:
    """How many images were embedded."""
    return len(self.names)

  @functools.cached_property
  def shown(self) -> list[int]:
    """Images that a page has a place for, ascending."""
    pairs = [*self.false_accepts, *self.false_rejects]
    pairs += itertools.chain.from_iterable(self.gallery)
    places = [(pair.first, pair.second) for pair in pairs]
    places += [(first, second) for first, second, _ in self.confusions]
    on_map = [row for row, *_ in self.points]
    return sorted({*on_map, *itertools.chain.from_iterable(places)})


def create(run: run_files.Run, options: Options, shown: Thumbnails) -> Pictures:
  """Makes the pictures of a run.

  Args:
    run: The run.
    options: How to make them.
    shown: Takes the images that are shown.

  Raises:
    errors.FieldError: If the model or the data are not there.
    errors.DataError: If they are damaged, or are not those of the run.
  """
  model = saved_models.load(
    str(run.path / run_directory.SAVED_MODEL), of_images=False
  )
  source = _open_source(run, options, model.image_shape)
  rows = source.draw_rows(options.max_images)
  embeddings, rows = image_sources.embed_rows(model.embed, source, rows)
  labels = source.labels[rows]
  names = [str(source.class_names.get(x, x)) for x in labels.tolist()]
  result = verification.evaluate_pairs(embeddings, labels)
  near = similarities.Similarities(embeddings, labels)
  generator = np.random.default_rng(0)
  queries, _ = _draw(generator, labels, _NUM_QUERIES, 1)
  on_map, groups = _draw(generator, labels, _NUM_MAP_CLASSES, _NUM_MAP_IMAGES)
  tsne, pca, explained = _project(embeddings[on_map])
  recognized = recognition.evaluate(embeddings, labels)
  confusions, classes = [], []
  if recognized:
    confusions, classes = _find_confusions(embeddings, labels, names)
  are_images = pipelines.is_image(model.image_shape)
  pictures = Pictures(
    labels=labels.tolist(),
    names=names,
    thumbnails={},
    num_classes=len(np.unique(labels)),
    num_found=len(source.labels),
    are_images=are_images,
    has_images=are_images
    and (
      options.show_images_of_training_users
      or not run.evaluation_on_training_users
    ),
    nearest_is_right=float(np.mean(near.is_nearest_right())),
    recall_again=result.recall_at_far[_FIGURE_RATE],
    same=near.same,
    different=near.different,
    gallery=[near.nearest(row, _NUM_NEIGHBOURS) for row in queries],
    false_accepts=near.hardest_false_accepts(_NUM_HARD),
    false_rejects=near.hardest_false_rejects(_NUM_HARD),
    points=list(
      zip(
        on_map,
        np.searchsorted(groups, labels[on_map]).tolist(),
        tsne.tolist(),
        pca.tolist(),
        strict=True,
      )
    ),
    groups=[names[np.argmax(labels == label)] for label in groups],
    explained=explained,
    recognized=recognized,
    confusions=confusions,
    classes=classes,
  )
  if not pictures.has_images:
    return pictures
  thumbnails = _read(source, rows, pictures.shown, shown.add)
  return dataclasses.replace(pictures, thumbnails=thumbnails)


def _find_confusions(
  embeddings: np.ndarray, labels: np.ndarray, names: list[str]
) -> tuple[
  list[tuple[int, int, float]], list[tuple[str, int, float, str | None]]
]:
  """`Pictures.confusions` and `Pictures.classes`, in a gallery of all."""
  of_all = identification.Identification(embeddings, labels)
  taken, enrolled = of_all.confusions(), of_all.enrolled[:, 0].tolist()
  images, right = taken.sum(axis=1), taken.diagonal()
  both = np.triu(taken + taken.T, k=1)
  first, second = np.nonzero(both)
  shares = both[first, second] / (images[first] + images[second])
  confusions = [
    (enrolled[first[x]], enrolled[second[x]], float(shares[x]))
    for x in np.argsort(-shares, kind="stable")[:_NUM_HARD]
  ]
  others = taken - np.diag(right)
  classes = [
    (
      names[image],
      int(images[x]),
      float(right[x] / images[x]),
      names[enrolled[others[x].argmax()]] if others[x].any() else None,
    )
    for x, image in enumerate(enrolled)
  ]
  return confusions, sorted(classes, key=operator.itemgetter(0))


def _draw(
  generator: np.random.Generator,
  labels: np.ndarray,
  num_classes: int,
  num_images: int,
) -> tuple[list[int], np.ndarray]:
  """Draws classes of several images; images of each, and the classes."""
  classes, counts = np.unique(labels, return_counts=True)
  drawn = np.sort(generator.permutation(classes[counts > 1])[:num_classes])
  rows = [
    generator.permutation(np.flatnonzero(labels == label))[:num_images]
    for label in drawn
  ]
  return np.concatenate(rows).tolist(), drawn


def _open_source(
  run: run_files.Run, options: Options, image_shape: tuple[int, ...]
) -> image_sources.ImageSource:
  """The held-out images of a run, for a model of images of a shape."""
  task = _open_task(run, options)
  if task.image_shape != image_shape:
    raise errors.DataError(
      f"the data must be images of {list(image_shape)}, which the model"
      f" takes, found {list(task.image_shape)}."
    )
  source = image_sources.open_split(task, _SPLIT)
  expected = run.trained["num_found"] or run.trained["num_images"]
  if len(source.labels) != expected:
    raise errors.DataError(
      f"the data must be those of the run, with {expected:,} held-out images,"
      f" found {len(source.labels):,}."
    )
  return source


def _open_task(run: run_files.Run, options: Options) -> task_lib.Task:
  """The task of the run, as its spec has it."""
  if options.task is not None:
    return options.task
  values = dict(options.data)
  # No setting of a run: whoever ended it says what came of bad examples.
  if run.summary["data"]["num_bad_examples"]:
    values.setdefault("on_bad_example", "skip")
  source = run.spec.task
  known = {spec.name for spec in config_lib.specs(type(source))}
  given = {name: value for name, value in values.items() if name in known}
  return dataclasses.replace(source, **given).create()


def _read(
  source: image_sources.ImageSource,
  rows: np.ndarray,
  places: Sequence[int],
  take: Callable[[np.ndarray], str],
) -> dict[int, str]:
  """Pictures' names by place among the rows; places are ascending."""
  chosen = rows[np.array(places, np.int64)]
  place_of = dict(zip(chosen.tolist(), places, strict=True))
  return {
    place_of[row]: take(image)
    for some, images in source.read(chosen)
    for row, image in zip(some.tolist(), images, strict=True)
  }


def _project(embeddings: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
  """Places by t-SNE and by PCA, `[n, 2]` in [0, 1], and PCA's variance."""
  norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
  unit = embeddings / np.where(norms > 0, norms, 1.0)
  pca = decomposition.PCA(n_components=min(2, *unit.shape), random_state=0)
  flat = pca.fit_transform(unit)
  flat = np.pad(flat, ((0, 0), (0, 2 - flat.shape[1])))
  tsne = flat
  if len(unit) > 3 and np.ptp(flat) > 0:
    tsne = manifold.TSNE(
      perplexity=min(_PERPLEXITY, (len(unit) - 1) / 3),
      # For so few images this is faster than to approximate, and reproducible.
      method="exact",
      init=flat / np.std(flat[:, 0]) * 1e-4,
      random_state=0,
    ).fit_transform(unit)
  explained = float(np.nansum(pca.explained_variance_ratio_))
  return _to_unit_square(tsne), _to_unit_square(flat), explained


def _to_unit_square(places: np.ndarray) -> np.ndarray:
  low = places.min(axis=0)
  span = np.maximum(places.max(axis=0) - low, 1e-12)
  return (places - low) / span
