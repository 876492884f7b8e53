"""Held-out images as a run's model sees them: neighbours, errors, a map."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping
import dataclasses
import itertools
from typing import Any

from etils import epy
import numpy as np

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.data import pipelines
from tff_fedemb.evaluation import identification
from tff_fedemb.evaluation import recognition
from tff_fedemb.evaluation import similarities
from tff_fedemb.evaluation import verification
from tff_fedemb.program import run_directory
from tff_fedemb.report import run_files
from tff_fedemb.report import thumbnails
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
class Shown:
  """An image in the page.

  Attributes:
    label: What its class is called.
    thumbnail: Its picture's name; `None` if it is not to be shown.
  """

  label: str
  thumbnail: str | None


@dataclasses.dataclass(frozen=True)
class Pair:
  """Two images, and whether the model is right about them."""

  first: Shown
  second: Shown
  similarity: float
  is_right: bool


@dataclasses.dataclass(frozen=True)
class MapPoint:
  """An image of the map, its class's number, and its places in [0, 1]."""

  image: Shown
  group: int
  tsne: tuple[float, float]
  pca: tuple[float, float]


@dataclasses.dataclass(frozen=True)
class ClassFigures:
  """What becomes of a class's images in a gallery of all classes.

  Attributes:
    name: What the class is called.
    num_images: Images besides the one that is enrolled.
    found: Share of them whose most similar identity is the right one.
    taken_for: The class that most others are taken for; `None` if none is.
  """

  name: str
  num_images: int
  found: float
  taken_for: str | None


@dataclasses.dataclass(frozen=True)
class Confusion:
  """Two classes, and the share of their images that is taken for the other."""

  first: Shown
  second: Shown
  share: float


@dataclasses.dataclass(frozen=True)
class Pictures:
  """What a page shows of a run's held-out images.

  Attributes:
    num_images: How many were embedded.
    num_classes: Of how many classes.
    num_found: How many held-out images there are.
    are_images: Whether they are images, rather than vectors or sequences.
    has_images: Whether images are shown, or figures alone.
    nearest_is_right: Share of images whose nearest one is of their class.
    recall_again: Recall of these images at 1e-3, computed from the model.
    same: Similarities of pairs of one class.
    different: Of pairs of two.
    gallery: For each of some images, the pairs with those nearest to it; the
      model is right where both are of one class.
    false_accepts: Pairs of two classes that are most alike; the model is right
      where it rejects them at a false accept rate of 1e-3.
    false_rejects: Pairs of one class that are least alike; the model is right
      where it accepts them.
    points: Of the map.
    groups: Names of the map's classes.
    explained: Share of the variance that the two directions of PCA hold.
    recognized: Figures of identification; none of too few classes.
    confusions: Classes that are taken for each other most often.
    classes: All classes of two images or more.
    false_positive_rate: Of strangers' images, where `recognized` has FNIR.
  """

  num_images: int
  num_classes: int
  num_found: int
  are_images: bool
  has_images: bool
  nearest_is_right: float
  recall_again: float
  same: np.ndarray
  different: np.ndarray
  gallery: list[list[Pair]]
  false_accepts: list[Pair]
  false_rejects: list[Pair]
  points: list[MapPoint]
  groups: list[str]
  explained: float
  recognized: tuple[recognition.Recognition, ...]
  confusions: list[Confusion]
  classes: list[ClassFigures]
  false_positive_rate: float = recognition.FALSE_POSITIVE_RATE


def create(
  run: run_files.Run, options: Options, shown: thumbnails.Thumbnails
) -> Pictures:
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
  result = verification.evaluate_pairs(embeddings, labels)
  near = similarities.Similarities(embeddings, labels)
  generator = np.random.default_rng(0)
  queries, _ = _draw(generator, labels, _NUM_QUERIES, 1)
  on_map, map_classes = _draw(
    generator, labels, _NUM_MAP_CLASSES, _NUM_MAP_IMAGES
  )
  gallery = [near.nearest(row, _NUM_NEIGHBOURS) for row in queries]
  accepts = near.hardest_false_accepts(_NUM_HARD)
  rejects = near.hardest_false_rejects(_NUM_HARD)
  pairs = [*accepts, *rejects, *itertools.chain.from_iterable(gallery)]
  places = {row for pair in pairs for row in (pair.first, pair.second)}
  recognized = recognition.evaluate(embeddings, labels)

  def name(label: int) -> str:
    return str(source.class_names.get(label, label))

  confused, classes = [], []
  if recognized:
    confused, classes = _find_confusions(embeddings, labels, name)
    places.update(*(images for images, _ in confused))
  are_images = pipelines.is_image(model.image_shape)
  has_images = are_images and (
    options.show_images_of_training_users
    or not run.evaluation_on_training_users
  )
  images: Mapping[int, str | None] = collections.defaultdict(lambda: None)
  if has_images:
    images = _read(source, rows, places.union(on_map), shown.add)
  rate = verification.format_false_accept_rate(_FIGURE_RATE)
  threshold = run.trained["threshold_at_far"][rate]

  def show(row: int) -> Shown:
    return Shown(name(int(labels[row])), images[row])

  def show_all(
    pairs: Iterable[similarities.Pair],
    is_right: Callable[[similarities.Pair], bool],
  ) -> list[Pair]:
    return [
      Pair(show(x.first), show(x.second), x.similarity, bool(is_right(x)))
      for x in pairs
    ]

  tsne, pca, explained = _project(embeddings[on_map])
  return Pictures(
    num_images=len(rows),
    num_classes=len(np.unique(labels)),
    num_found=len(source.labels),
    are_images=are_images,
    has_images=has_images,
    nearest_is_right=float(np.mean(near.is_nearest_right())),
    recall_again=result.recall_at_far[_FIGURE_RATE],
    same=near.same,
    different=near.different,
    gallery=[
      show_all(found, lambda x: labels[x.first] == labels[x.second])
      for found in gallery
    ],
    false_accepts=show_all(accepts, lambda x: x.similarity < threshold),
    false_rejects=show_all(rejects, lambda x: x.similarity >= threshold),
    points=[
      MapPoint(show(row), int(group), tuple(by_tsne), tuple(by_pca))
      for row, group, by_tsne, by_pca in zip(
        on_map,
        np.searchsorted(map_classes, labels[on_map]),
        tsne.tolist(),
        pca.tolist(),
        strict=True,
      )
    ],
    groups=[name(int(label)) for label in map_classes],
    explained=explained,
    recognized=recognized,
    confusions=[
      Confusion(show(first), show(second), share)
      for (first, second), share in confused
    ],
    classes=classes,
  )


def _find_confusions(
  embeddings: np.ndarray, labels: np.ndarray, name: Callable[[int], str]
) -> tuple[list[tuple[tuple[int, int], float]], list[ClassFigures]]:
  """What classes are taken for, in a gallery of all of them.

  Returns:
    Images of two classes, and the share of these classes' images that is taken
    for the other class; and figures of each class.
  """
  of_all = identification.Identification(embeddings, labels)
  taken, shown = of_all.confusions(), of_all.enrolled[:, 0].tolist()
  images = taken.sum(axis=1)
  both = np.triu(taken + taken.T, k=1)
  first, second = np.nonzero(both)
  shares = both[first, second] / (images[first] + images[second])
  confused = [
    ((shown[first[x]], shown[second[x]]), float(shares[x]))
    for x in np.argsort(-shares, kind="stable")[:_NUM_HARD]
  ]
  names = [name(int(label)) for label in of_all.labels]
  return confused, _describe_classes(taken, names)


def _describe_classes(
  taken: np.ndarray, names: list[str]
) -> list[ClassFigures]:
  """Figures of each class, by name."""
  found = []
  for row, name in enumerate(names):
    counts = taken[row].astype(float)
    num_images, right = counts.sum(), counts[row]
    counts[row] = 0
    found.append(
      ClassFigures(
        name,
        int(num_images),
        float(right / num_images),
        names[int(counts.argmax())] if counts.any() else None,
      )
    )
  return sorted(found, key=lambda x: x.name)


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
  places: Iterable[int],
  take: Callable[[np.ndarray], str],
) -> dict[int, str]:
  """Pictures' names by place among the rows."""
  ordered = np.array(sorted(places), np.int64)
  place_of = dict(zip(rows[ordered].tolist(), ordered.tolist(), strict=True))
  return {
    place_of[row]: take(image)
    for some, images in source.read(rows[ordered])
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
      # Of so few images faster than the approximation, and the same everywhere.
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
