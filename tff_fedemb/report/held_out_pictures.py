"""Held-out images as a run's model sees them: neighbours, errors, a map."""

from __future__ import annotations

import base64
import io
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
  kind, buffer = "jpeg" if is_photo else "png", io.BytesIO()
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
    Values by name; images are known by their place among those embedded:

    num_images, num_found: Numbers of images, embedded and held out.
    num_classes: Number of classes of the images.
    labels, names: Class of each image, and what that is called.
    thumbnails: Names of the pictures that are shown, by image.
    are_images: Whether they are images, rather than vectors or sequences.
    has_images: Whether images are shown, or figures alone.
    nearest_is_right: Share of images whose nearest one is of their class.
    recall_again: Recall of these images at 1e-3, computed from the model.
    same, different: Similarities of the pairs of one class, and of two.
    gallery: For each of some images, the pairs with those nearest to it.
    false_accepts: Pairs of two classes that are most alike.
    false_rejects: Pairs of one class that are least alike.
    points: Points of the map: an image, its class's number there, and its
      places by t-SNE and by PCA, in [0, 1].
    groups: Names of the map's classes.
    explained: Share of the variance that the two directions of PCA hold.
    recognized: Figures of identification; none of too few classes.
    false_positive_rate: Share of strangers' images, where these have FNIR.
    confusions: Images of the classes that are taken for each other most often,
      and the share of both classes' images that is taken for the other.
    classes: Each class of two images or more, in a gallery with one image of
      each: name, number of other images, share of them whose most similar
      identity is the right one, and the class that most of the rest is taken
      for; `None` without a rest.

  Raises:
    errors.FieldError: If the model or the data are not there.
    errors.DataError: If they are damaged, or are not those of the run.
  """
  source = image_sources.open_split(task, "test")
  expected = run.trained["num_found"] or run.trained["num_images"]
  if len(source.labels) != expected:
    raise errors.DataError(
      f"the data must be those of the run, with {expected:,} held-out images,"
      f" found {len(source.labels):,}."
    )
  model = saved_models.load(
    str(run.path / run_directory.SAVED_MODEL), of_images=False
  )
  rows = source.draw_rows(max_images)
  embeddings, rows = image_sources.embed_rows(model.embed, source, rows)
  labels = source.labels[rows]
  names = [str(source.class_names.get(x, x)) for x in labels.tolist()]
  near = similarities.Similarities(embeddings, labels)
  generator = np.random.default_rng(0)
  queries, _ = _draw(generator, labels, _NUM_QUERIES, 1)
  on_map, groups = _draw(generator, labels, _NUM_MAP_CLASSES, _NUM_MAP_IMAGES)
  tsne, pca, explained = _project(embeddings[on_map])
  numbers = np.searchsorted(groups, labels[on_map]).tolist()
  are_images = pipelines.is_image(task.image_shape)
  has_images = are_images and (
    shows_training_users or not run.summary["evaluation_on_training_users"]
  )
  result = verification.evaluate_pairs(embeddings, labels)
  found = {
    "num_images": len(rows),
    "num_found": len(source.labels),
    "num_classes": len(np.unique(labels)),
    "labels": labels.tolist(),
    "names": names,
    "thumbnails": {},
    "are_images": are_images,
    "has_images": has_images,
    "nearest_is_right": float(np.mean(near.is_nearest_right())),
    "recall_again": result.recall_at_far[1e-3],
    "same": near.same,
    "different": near.different,
    "gallery": [near.nearest(row, _NUM_NEIGHBOURS) for row in queries],
    "false_accepts": near.hardest_false_accepts(_NUM_HARD),
    "false_rejects": near.hardest_false_rejects(_NUM_HARD),
    "points": [*zip(on_map, numbers, tsne, pca, strict=True)],
    "groups": [names[np.argmax(labels == label)] for label in groups],
    "explained": explained,
    "false_positive_rate": recognition.FALSE_POSITIVE_RATE,
    **_recognize(embeddings, labels, names),
  }
  if has_images:
    places = {*on_map, *(x for *two, _ in found["confusions"] for x in two)}
    for pairs in (
      *(found["false_accepts"], found["false_rejects"], *found["gallery"]),
    ):
      places |= {place for pair in pairs for place in (pair.first, pair.second)}
    place_of = {rows[place]: place for place in places}
    for some, images in source.read(np.sort(list(place_of))):
      found["thumbnails"] |= {
        place_of[row]: add_thumbnail(thumbnails, image)
        for row, image in zip(some, images, strict=True)
      }
  return found


def _recognize(
  embeddings: np.ndarray, labels: np.ndarray, names: list[str]
) -> dict[str, Any]:
  """Figures of identification; confusions and classes in a gallery of all."""
  recognized = recognition.evaluate(embeddings, labels)
  if not recognized:
    return {"recognized": [], "confusions": [], "classes": []}
  of_all = identification.Identification(embeddings, labels)
  taken, enrolled = of_all.confusions(), of_all.enrolled[:, 0].tolist()
  images, right = taken.sum(axis=1), taken.diagonal()
  first, second = np.nonzero(both := np.triu(taken + taken.T, k=1))
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
  return {
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
