"""Held-out images as a run's model sees them: neighbours, errors, a map."""

from __future__ import annotations

import base64
from collections.abc import Mapping
import io
import itertools
import operator
from typing import Any

from etils import epy
import numpy as np
from PIL import Image

from tff_fedemb import errors
from tff_fedemb.data import pipelines
from tff_fedemb.evaluation import identification
from tff_fedemb.evaluation import pairs as pairs_lib
from tff_fedemb.evaluation import recognition
from tff_fedemb.evaluation import similarities
from tff_fedemb.evaluation import verification
from tff_fedemb.records import run_directory
from tff_fedemb.report import finished_run
from tff_fedemb.serving import image_sources
from tff_fedemb.serving import saved_models
from tff_fedemb.spec import task as task_lib

with epy.lazy_imports():
  from sklearn import decomposition
  from sklearn import manifold
  from sklearn import preprocessing

_NUM_QUERIES = 12
_NUM_NEIGHBOURS = 5
_NUM_HARD = 8
_NUM_MAP_CLASSES = 8
_NUM_MAP_IMAGES = 24
_PERPLEXITY = 30.0
# A thumbnail's longer side in pixels, and its JPEG quality.
_MAX_SIDE = 64
_JPEG_QUALITY = 82


def add_thumbnail(thumbnails: dict[str, str], image: np.ndarray) -> str:
  """Adds a small picture to those of a page, unless it is there.

  Args:
    thumbnails: Names of the page's pictures by their data URIs.
    image: uint8 `[height, width, channels]`.

  Returns:
    The picture's name.
  """
  # Drawings are small as PNG, photos are not.
  is_photo = image.shape[2] > 1
  picture = Image.fromarray(image if is_photo else image[..., 0])
  # Keeps the proportions, and what is small as it is.
  picture.thumbnail((_MAX_SIDE, _MAX_SIDE))
  kind = "jpeg" if is_photo else "png"
  buffer = io.BytesIO()
  # PNG has no quality to give up, and takes no notice of it.
  picture.save(buffer, format=kind, optimize=True, quality=_JPEG_QUALITY)
  data = base64.b64encode(buffer.getvalue()).decode()
  uri = f"data:image/{kind};base64,{data}"
  return thumbnails.setdefault(uri, f"t{len(thumbnails)}")


def create(
  run: finished_run.FinishedRun,
  task: task_lib.Task,
  *,
  max_images: int,
  shows_training_users: bool,
  thumbnails: dict[str, str],
) -> dict[str, Any]:
  """Makes the pictures of a run.

  Args:
    run: The run.
    task: Task of the run.
    max_images: Held-out images that are embedded, a random sample.
    shows_training_users: Whether images may be shown that may be of users who
      train.
    thumbnails: Takes the images that are shown, as `add_thumbnail`.

  Returns:
    Values by name, these and what `_compare`, `_draw_map` and `_recognize`
    return; images are known by their place among those embedded:

    num_images, num_found: Numbers of images, embedded and held out.
    num_classes: Number of classes of the images.
    labels, names: Class of each image, and what that is called.
    thumbnails: Names of the pictures that are shown, by image.
    are_images: Whether they are images, rather than vectors or sequences.
    has_images: Whether images are shown, or figures alone.

  Raises:
    errors.FieldError: If the model or the data are not there.
    errors.DataError: If they are damaged, or are not those of the run.
  """
  source = _open(run, task)
  model_path = str(run.path / run_directory.SAVED_MODEL)
  model = saved_models.load(model_path, of_images=False)
  rows = source.draw_rows(max_images)
  embeddings, rows = image_sources.embed_rows(model.embed, source, rows)
  labels = source.labels[rows]
  names = [str(source.class_names.get(x, x)) for x in labels.tolist()]
  are_images = pipelines.is_image(task.image_shape)
  has_images = are_images and (
    shows_training_users or not run.summary["evaluation_on_training_users"]
  )
  found = {
    "num_images": len(rows),
    "num_found": len(source.labels),
    "num_classes": len(np.unique(labels)),
    "labels": labels.tolist(),
    "names": names,
    "thumbnails": {},
    "are_images": are_images,
    "has_images": has_images,
  }
  generator = np.random.default_rng(0)
  found |= _compare(generator, embeddings, labels)
  found |= _draw_map(generator, embeddings, labels, names)
  found |= _recognize(embeddings, labels, names)
  if has_images:
    place_of = {rows[place]: place for place in _find_shown(found)}
    for some, images in source.read(np.sort(list(place_of))):
      for row, image in zip(some, images, strict=True):
        name = add_thumbnail(thumbnails, image)
        found["thumbnails"][place_of[row]] = name
  return found


def _open(
  run: finished_run.FinishedRun,
  task: task_lib.Task,
) -> image_sources.ImageSource:
  """Opens the held-out images, as many as the run has evaluated."""
  source = image_sources.open_split(task, "test")
  expected = run.trained["num_found"] or run.trained["num_images"]
  if len(source.labels) != expected:
    raise errors.DataError(
      f"the data must be those of the run, with {expected:,} held-out images,"
      f" found {len(source.labels):,}."
    )
  return source


def _compare(
  generator: np.random.Generator,
  embeddings: np.ndarray,
  labels: np.ndarray,
) -> dict[str, Any]:
  """Similarities of pairs, and the pairs to show.

  Returns:
    nearest_is_right: Share of images whose nearest one is of their class.
    recall_again: Recall of these images at 1e-3, computed from the model.
    same, different: Similarities of the pairs of one class, and of two.
    gallery: For each of some images, the pairs with those nearest to it.
    false_accepts: Pairs of two classes that are most alike.
    false_rejects: Pairs of one class that are least alike.
  """
  near = similarities.Similarities(embeddings, labels)
  queries, _ = _draw(generator, labels, _NUM_QUERIES, 1)
  result = verification.evaluate_pairs(embeddings, labels)
  return {
    "nearest_is_right": float(np.mean(near.is_nearest_right())),
    "recall_again": result.recall_at_far[1e-3],
    "same": near.same,
    "different": near.different,
    "gallery": [near.nearest(row, _NUM_NEIGHBOURS) for row in queries],
    "false_accepts": near.hardest_false_accepts(_NUM_HARD),
    "false_rejects": near.hardest_false_rejects(_NUM_HARD),
  }


def _draw_map(
  generator: np.random.Generator,
  embeddings: np.ndarray,
  labels: np.ndarray,
  names: list[str],
) -> dict[str, Any]:
  """A map of some images of some classes.

  Returns:
    points: An image, its class's number on the map, and its places by t-SNE and
      by PCA, in [0, 1].
    groups: Names of the map's classes.
    explained: Share of the variance that the two directions of PCA hold.
  """
  images, groups = _draw(generator, labels, _NUM_MAP_CLASSES, _NUM_MAP_IMAGES)
  tsne, pca, explained = _project(embeddings[images])
  numbers = np.searchsorted(groups, labels[images]).tolist()
  return {
    "points": list(zip(images, numbers, tsne, pca, strict=True)),
    "groups": [names[np.argmax(labels == label)] for label in groups],
    "explained": explained,
  }


def _find_shown(found: Mapping[str, Any]) -> set[int]:
  """Places of the images that are shown."""
  shown = {image for image, _, _, _ in found["points"]}
  for first, second, _ in found["confusions"]:
    shown |= {first, second}
  lists_of_pairs = found["gallery"] + [
    found["false_accepts"],
    found["false_rejects"],
  ]
  for pair in itertools.chain.from_iterable(lists_of_pairs):
    shown |= {pair.first, pair.second}
  return shown


def _recognize(
  embeddings: np.ndarray,
  labels: np.ndarray,
  names: list[str],
) -> dict[str, Any]:
  """Figures of identification; confusions and classes in a gallery of all.

  Returns:
    recognized: Figures of identification; none of too few classes.
    false_positive_rate: Share of strangers' images, where these have FNIR.
    confusions: Images of the classes that are taken for each other most often,
      and the share of both classes' images that is taken for the other.
    classes: Each class of two images or more, in a gallery with one image of
      each: name, number of other images, share of them whose most similar
      identity is the right one, and the class that most of the rest is taken
      for; `None` without a rest.
  """
  recognized = recognition.evaluate(embeddings, labels)
  rate = recognition.FALSE_POSITIVE_RATE
  if not recognized:
    return {
      "false_positive_rate": rate,
      "recognized": [],
      "confusions": [],
      "classes": [],
    }
  of_all = identification.Identification(embeddings, labels)
  taken = of_all.confusions()
  enrolled = of_all.enrolled[:, 0].tolist()
  images = taken.sum(axis=1)
  right = taken.diagonal()
  both = np.triu(taken + taken.T, k=1)
  first, second = np.nonzero(both)
  shares = both[first, second] / (images[first] + images[second])
  confusions = [
    (enrolled[first[x]], enrolled[second[x]], float(shares[x]))
    for x in np.argsort(-shares, kind="stable")[:_NUM_HARD]
  ]
  others = taken - np.diag(right)
  classes = []
  for x, image in enumerate(enrolled):
    mistaken = None
    if others[x].any():
      mistaken = names[enrolled[others[x].argmax()]]
    share = float(right[x] / images[x])
    classes.append((names[image], int(images[x]), share, mistaken))
  return {
    "false_positive_rate": rate,
    "recognized": recognized,
    "confusions": confusions,
    "classes": sorted(classes, key=operator.itemgetter(0)),
  }


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


def _project(embeddings: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
  """Places by t-SNE and by PCA, `[n, 2]` in [0, 1], and PCA's variance."""
  unit = pairs_lib.normalize(embeddings)
  # Embeddings may have a single number.
  unit = np.pad(unit, ((0, 0), (0, 1)))
  pca = decomposition.PCA(n_components=2, random_state=0)
  flat = tsne = pca.fit_transform(unit)
  if len(unit) > 3 and np.ptp(flat) > 0:
    tsne = manifold.TSNE(
      perplexity=min(_PERPLEXITY, (len(unit) - 1) / 3),
      # For so few images this is faster than to approximate, and reproducible.
      method="exact",
      random_state=0,
    ).fit_transform(unit)
  explained = float(np.nansum(pca.explained_variance_ratio_))
  places = preprocessing.minmax_scale(np.concatenate([tsne, flat], axis=1))
  return places[:, :2], places[:, 2:], explained
