"""Held-out images as a run's model sees them: neighbours, errors, a map."""

from __future__ import annotations

import base64
from collections.abc import Mapping
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
# The longer side of a thumbnail in pixels, and its JPEG quality.
_MAX_SIDE = 64
_JPEG_QUALITY = 82


def add_thumbnail(thumbnails: dict[str, str], image: np.ndarray) -> str:
  """Adds a small picture to those of a page, unless it is there.

  Equal pictures have one name, so a page has each of them once.

  Args:
    thumbnails: Names of the page's pictures by their data URIs; changed.
    image: uint8 `[height, width, channels]`.

  Returns:
    Name of the picture.
  """
  # PNG files of drawings are small, those of photos are large.
  kind = "jpeg"
  if image.shape[2] == 1:
    kind = "png"
    image = image[..., 0]
  picture = Image.fromarray(image)
  # It keeps the proportions, and does not enlarge small images.
  picture.thumbnail((_MAX_SIDE, _MAX_SIDE))
  buffer = io.BytesIO()
  # PNG ignores the quality.
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
  """Computes the figures and pictures of held-out images of a run.

  The choice of images is the same each time. Images are shown only if none of
  them belongs to a user who trained, unless you allow it; figures are computed
  either way.

  Args:
    run: The run.
    task: Task of the run.
    max_images: Number of held-out images to embed, chosen at random.
    shows_training_users: Whether images may be shown that may belong to users
      who train.
    thumbnails: Receives the images that are shown, as in `add_thumbnail`.

  Returns:
    Values by name: these, and those of `_compare`, `_draw_map` and
    `_recognize`. Images are given by their index among the embedded images.

    num_images, num_found: Numbers of embedded and of all held-out images.
    num_classes: Number of classes of the embedded images.
    labels, names: Class of each image, and the name of the class.
    thumbnails: Names of the pictures that are shown, by image.
    are_images: Whether they are images, rather than vectors or sequences.
    has_images: Whether images are shown, besides figures.

  Raises:
    errors.FieldError: If the model or the data do not exist.
    errors.DataError: If they are damaged, or the data are not those of the run.
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
    shown = found["thumbnails"]
    for some, images in source.read(np.sort(list(place_of))):
      for row, image in zip(some, images, strict=True):
        shown[place_of[row]] = add_thumbnail(thumbnails, image)
  return found


def _open(
  run: finished_run.FinishedRun,
  task: task_lib.Task,
) -> image_sources.ImageSource:
  """Opens the held-out images; refuses another number than the run had.

  Args:
    run: The run.
    task: Task of the run.

  Raises:
    errors.DataError: If the number differs.
  """
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
  """Compares pairs of images, and chooses those to show.

  Args:
    generator: Draws the images of the gallery.
    embeddings: `[n, dim]`, of any norm.
    labels: Class of each image, int64 `[n]`.

  Returns:
    nearest_is_right: Share of the images whose class has another one for which
      the nearest image is of their class.
    num_with_another: Number of the images whose class has another one.
    recall_again: Recall of these images at false accept rate 1e-3.
    same, different: Similarities of the pairs of one class, and of two classes.
    gallery: For each of some images, the pairs with its nearest images.
    false_accepts: The most similar pairs of two classes.
    false_rejects: The least similar pairs of one class.
  """
  near = similarities.Similarities(embeddings, labels)
  queries, _ = _draw(generator, labels, _NUM_QUERIES, 1)
  result = verification.evaluate_pairs(embeddings, labels)
  is_right = near.is_nearest_right()
  return {
    "nearest_is_right": float(np.mean(is_right)),
    "num_with_another": len(is_right),
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
  """Places some images of some classes on a map.

  Args:
    generator: Draws up to eight classes, and up to 24 images of each.
    embeddings: `[n, dim]`, of any norm.
    labels: Class of each image, int64 `[n]`.
    names: Name of the class of each image, `[n]`.

  Returns:
    points: For each image of the map: the image, the number of its class on the
      map, and its places by t-SNE and by PCA, `[2]` in [0, 1].
    groups: Names of the classes on the map.
    explained: Share of the variance in the two directions of PCA.
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
  """Returns the images that are shown.

  Args:
    found: Values of `create`, before its pictures.

  Returns:
    Places among the embedded images, for the map, confusions, gallery and
    errors.
  """
  shown = {image for image, _, _, _ in found["points"]}
  for first, second, _ in found["confusions"]:
    shown |= {first, second}
  lists = found["gallery"] + [found["false_accepts"], found["false_rejects"]]
  for pairs in lists:
    for pair in pairs:
      shown |= {pair.first, pair.second}
  return shown


def _recognize(
  embeddings: np.ndarray,
  labels: np.ndarray,
  names: list[str],
) -> dict[str, Any]:
  """Computes figures of identification.

  Args:
    embeddings: `[n, dim]`, of any norm.
    labels: Class of each image, int64 `[n]`.
    names: Name of the class of each image, `[n]`.

  Returns:
    recognized: Figures of identification; empty with too few classes.
    false_positive_rate: Share of strangers' images at which FNIR is given.
    confusions, classes: See `_count_errors`; empty with too few classes.
  """
  recognized = recognition.evaluate(embeddings, labels)
  found: dict[str, Any] = {
    "false_positive_rate": recognition.FALSE_POSITIVE_RATE,
    "recognized": recognized,
    "confusions": [],
    "classes": [],
  }
  if recognized:
    found |= _count_errors(embeddings, labels, names)
  return found


def _count_errors(
  embeddings: np.ndarray,
  labels: np.ndarray,
  names: list[str],
) -> dict[str, Any]:
  """Counts errors in a gallery that has one image of each class.

  Args:
    embeddings: `[n, dim]`, of any norm.
    labels: Class of each image, int64 `[n]`.
    names: Name of the class of each image, `[n]`.

  Returns:
    confusions: Images of the two classes that are confused most often, and the
      share of both classes' images that is taken for the other class.
    classes: For each class of at least two images: its name, the number of its
      other images, the share of them whose most similar identity is the right
      one, and the class that most of the rest is taken for; `None` without a
      rest.
  """
  of_all = identification.Identification(embeddings, labels)
  taken = of_all.confusions()
  enrolled = of_all.enrolled[:, 0].tolist()
  images = taken.sum(axis=1)
  right = taken.diagonal()
  both = np.triu(taken + taken.T, k=1)
  first, second = np.nonzero(both)
  shares = both[first, second] / (images[first] + images[second])
  confusions = []
  for x in np.argsort(-shares, kind="stable")[:_NUM_HARD]:
    pair = (enrolled[first[x]], enrolled[second[x]])
    confusions.append((*pair, float(shares[x])))
  others = taken - np.diag(right)
  classes = []
  for x, image in enumerate(enrolled):
    mistaken = None
    if others[x].any():
      mistaken = names[enrolled[others[x].argmax()]]
    share = float(right[x] / images[x])
    classes.append((names[image], int(images[x]), share, mistaken))
  classes.sort(key=operator.itemgetter(0))
  return {"confusions": confusions, "classes": classes}


def _draw(
  generator: np.random.Generator,
  labels: np.ndarray,
  num_classes: int,
  num_images: int,
) -> tuple[list[int], np.ndarray]:
  """Draws classes of several images each; returns their images, and them.

  Args:
    generator: The draw.
    labels: Class of each image, int64 `[n]`.
    num_classes: Largest number of classes, of those with two images or more.
    num_images: Largest number of images of a class.

  Returns:
    Places of the images, class by class, and the labels of the classes,
    ascending.
  """
  classes, counts = np.unique(labels, return_counts=True)
  shuffled = generator.permutation(classes[counts > 1])
  drawn = np.sort(shuffled[:num_classes])
  images: list[int] = []
  for label in drawn:
    shuffled = generator.permutation(np.flatnonzero(labels == label))
    images += shuffled[:num_images].tolist()
  return images, drawn


def _project(embeddings: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
  """Returns places by t-SNE and by PCA, and the variance that PCA explains.

  With three images or fewer, or if all are equal, PCA stands for t-SNE.

  Args:
    embeddings: `[images, dim]`, of any norm.

  Returns:
    Two arrays `[images, 2]` in [0, 1], and a share in [0, 1].
  """
  unit = pairs_lib.normalize(embeddings)
  # PCA needs two dimensions, but an embedding may have only one.
  unit = np.pad(unit, ((0, 0), (0, 1)))
  pca = decomposition.PCA(n_components=2, random_state=0)
  flat = tsne = pca.fit_transform(unit)
  if len(unit) > 3 and np.ptp(flat) > 0:
    tsne = manifold.TSNE(
      perplexity=min(_PERPLEXITY, (len(unit) - 1) / 3),
      # With so few images this is faster than approximation; it also gives the
      # same map each time.
      method="exact",
      random_state=0,
    ).fit_transform(unit)
  explained = float(np.nansum(pca.explained_variance_ratio_))
  places = preprocessing.minmax_scale(np.concatenate([tsne, flat], axis=1))
  return places[:, :2], places[:, 2:], explained
