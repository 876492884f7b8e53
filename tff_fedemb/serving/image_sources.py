"""Labelled images of a folder or a task, read a batch at a time to be embedded.

Labels are known before an image is decoded: you can choose images by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
import itertools
import pathlib
from typing import Any

from etils import epy
import numpy as np

from tff_fedemb import checks
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import progress as progress_lib
from tff_fedemb.data import bad_examples
from tff_fedemb.spec import task as task_lib

with epy.lazy_imports():
  import tensorflow as tf

  from tff_fedemb.data import encoded_images
  from tff_fedemb.data import image_folder as image_folder_lib
  from tff_fedemb.evaluation import embedding
  from tff_fedemb.evaluation import verification

ImageShape = tuple[int, ...]
# Rows that could be read, and images uint8 `[b, height, width, channels]`.
Batches = Iterator[tuple[np.ndarray, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class ImageSource:
  """Labelled images, not yet read.

  Attributes:
    description: The images in a few words.
    labels: int64 `[n]`, each one of `classes`.
    read: Maps ascending rows to batches of them.
    paths: Files of the images, `[n]`; empty if they have no files of their own.
    users: User of each image, str `[n]`; `None` if not known.
    largest_value: Largest value that a pixel may have.
    skipped: Names of the images that `read` left out so far.
    notes: Other lines for the user.
    class_labels: The same as `classes` [labels of those with an image here].
    class_names: Names of classes by label; others are called by their label.
    facts: JSON values for a report on where the images are from.
  """

  description: str
  labels: np.ndarray
  read: Callable[[np.ndarray], Batches]
  paths: Sequence[pathlib.Path] = ()
  users: np.ndarray | None = None
  largest_value: int = 255
  skipped: list[str] = dataclasses.field(default_factory=list)
  notes: tuple[str, ...] = ()
  class_labels: np.ndarray | None = None
  class_names: Mapping[int, str] = dataclasses.field(default_factory=dict)
  facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def classes(self) -> np.ndarray:
    """Labels of all classes, ascending, int64 `[c]`."""
    if self.class_labels is None:
      return np.unique(self.labels)
    return self.class_labels

  def draw_rows(
    self, max_images: int, rows: np.ndarray | None = None, seed: Any = 0
  ) -> np.ndarray:
    """Draws at most `max_images` rows, 0 for all, of all or some; ascending.

    Args:
      max_images: Largest number of rows; 0 for all.
      rows: Rows to draw from, int64 `[n]`, ascending; None for all.
      seed: Seed of `numpy.random.default_rng`: the same seed draws the same
        rows.

    Returns:
      Rows without repetition, int64 `[m]`, ascending.
    """
    if rows is None:
      rows = np.arange(len(self.labels))
    if not max_images or len(rows) <= max_images:
      return rows
    generator = np.random.default_rng(seed)
    return np.sort(generator.choice(rows, size=max_images, replace=False))

  @property
  def warnings(self) -> tuple[str, ...]:
    """Notes for the user, and a line on the images left out so far."""
    return self.notes + _count_files("skipped", "unreadable", self.skipped)


def _split(rows: np.ndarray, image_shape: ImageShape) -> Iterator[np.ndarray]:
  """Yields rows for a batch of images at a time.

  Args:
    rows: Rows, int64 `[n]`.
    image_shape: Shape of an image, on which the size of a batch depends.

  Yields:
    Consecutive parts of `rows`.
  """
  size = embedding.batch_size(image_shape)
  for start in range(0, len(rows), size):
    yield rows[start : start + size]


def _count_files(
  verb: str, kind: str, names: Sequence[object]
) -> tuple[str, ...]:
  """Returns a warning that counts files, if there are any.

  Args:
    verb: What was done about them, such as "skipped".
    kind: What they are, such as "unreadable".
    names: Names of the files.

  Returns:
    One line, or none.
  """
  files = "file" if len(names) == 1 else "files"
  return bad_examples.warn_of(f"{verb} {len(names):,} {kind} {files}", names)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageConfig(config_lib.Config):
  """Images to embed, of a folder or a task.

  Attributes:
    image_folder: Folder with one sub-folder a class, of PNG, JPEG, BMP, GIF,
      PGM or WebP images, instead of a task.
    task: Task whose images to embed.
    on_bad_example: Treatment of images that cannot be used; skip leaves them
      out and counts them.
    max_images: Maximum number of images, drawn at random; 0 for all.
    overwrite: Whether to replace files that exist.
  """

  image_folder: str | None = None
  task: task_lib.TaskSource | None = config_lib.part(
    None, registry=task_lib.SOURCES
  )
  on_bad_example: str = config_lib.field("fail", choices=bad_examples.POLICIES)
  max_images: int = config_lib.field(0, minimum=0)
  overwrite: bool = False

  @property
  def inputs(self) -> dict[str, list[str]]:
    """Paths by flag of the files that are read, which no result replaces."""
    found = {}
    for _, field, value in config_lib.walk(self):
      if field.path and value:
        found[field.flag] = [value]
    return found

  def open(
    self, split: str | None, model_shape: ImageShape | None
  ) -> ImageSource:
    """Opens the images.

    A task is created for it. Photos of a task are read in the colours, and
    decoded to the size, that the model takes.

    Args:
      split: Split of the task, "train" or one of `task.EVALUATION_SPLITS`;
        None for a folder.
      model_shape: Shape of the model's images; `None` for those of the task.

    Returns:
      The images, not yet read.

    Raises:
      errors.DataError: If they are damaged.
      errors.FieldError: If there are none, or the model takes other shapes.
    """
    if self.image_folder:
      shape = checks.check_given("image_size", model_shape)
      return open_folder(
        self.image_folder, shape, on_bad_example=self.on_bad_example
      )
    split = checks.check_given("split", split)
    task = _create_task(checks.check_given("task", self.task), model_shape)
    source = _open_train(task) if split == "train" else open_split(task, split)
    left_out = task.bad_examples.lines
    notes = [f"left out {bad_examples.summarize(left_out)}"] if left_out else []
    facts = {
      "task": task.name,
      "split": split,
      "num_training_users": len(task.train_users),
      "bad_examples": list(left_out),
    }
    return dataclasses.replace(
      source, notes=tuple(task.warnings) + tuple(notes), facts=facts
    )


def _create_task(
  source: task_lib.TaskSource, model_shape: ImageShape | None
) -> task_lib.Task:
  """Creates a task whose images have the shape that a model takes.

  Args:
    source: The task, not yet read.
    model_shape: Shape of the model's images; None for that of the task.

  Returns:
    The task. Fields `color_mode` and `image_size` of its source, if there are
    such, follow the model.

  Raises:
    errors.FieldError: If the task has no images, or of another shape.
  """
  known = {spec.name for spec in config_lib.specs(type(source))}
  changes: dict[str, Any] = {}
  if model_shape is not None and "color_mode" in known:
    # Photos are read in the colours that the model takes.
    changes["color_mode"] = "grayscale" if model_shape[2] == 1 else "rgb"
  task = dataclasses.replace(source, **changes).create()
  if model_shape is None:
    if not task.has_images:
      raise errors.FieldError("task", "be one of images", task.name)
    return task
  if task.decode_images is not None and "image_size" in known:
    # Photos are decoded to the size that the model takes.
    changes["image_size"] = model_shape[0]
    task = dataclasses.replace(source, **changes).create()
  if task.image_shape != model_shape:
    wanted = f"{list(task.image_shape)}, the size of task {task.name}"
    must = f"take images of {wanted}"
    raise errors.FieldError("saved_model", must, list(model_shape))
  return task


def embed_rows(
  embed: Callable[[np.ndarray], np.ndarray],
  source: ImageSource,
  rows: np.ndarray,
  *,
  map_fn: Callable[..., Iterator[np.ndarray]] = map,
  may_be_none: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
  """Embeds images.

  Args:
    embed: Maps a batch of images to embeddings `[b, dim]`.
    source: Source of the images.
    rows: Rows to embed, int64 `[m]`, ascending.
    map_fn: Applies `embed` to batches of images, like `map`.
    may_be_none: Whether it is no error if none can be read.

  Returns:
    Embeddings `[k, dim]`, and the rows that could be read, `[k]`.

  Raises:
    errors.DataError: If an image cannot be read and is not to be skipped, none
      can be read, or an embedding is not finite.
  """
  read: list[np.ndarray] = []
  embeddings: list[np.ndarray] = []

  def read_images() -> Iterator[np.ndarray]:
    for some, images in source.read(rows):
      read.append(some)
      yield images

  with progress_lib.create_bar(
    "Embedding", unit="images", total=len(rows)
  ) as progress:
    for batch in map_fn(embed, read_images()):
      if not np.isfinite(batch).all():
        raise errors.DataError(
          f"{source.description} must have embeddings that are finite, found"
          " others: use another model."
        )
      embeddings.append(batch)
      progress.update(len(batch))
  if not read and may_be_none:
    return np.zeros([0, 0], np.float32), rows[:0]
  if not read:
    raise errors.DataError(
      f"{source.description} must have one that can be read, found none of"
      f" {len(rows):,}."
    )
  return np.concatenate(embeddings), np.concatenate(read)


def evaluate(
  embed: Callable[[np.ndarray], np.ndarray],
  source: ImageSource,
  rows: np.ndarray,
  *,
  map_fn: Callable[..., Iterator[np.ndarray]] = map,
  **options: Any,
) -> tuple[verification.VerificationResult, np.ndarray, np.ndarray]:
  """Embeds images and compares all pairs.

  Args:
    embed, source, rows, map_fn: See `embed_rows`.
    **options: Options of `verification.evaluate_pairs`.

  Returns:
    The result, the embeddings `[k, dim]` and their classes `[k]`.

  Raises:
    errors.DataError: As `embed_rows`, or if there are no pairs to compare.
  """
  embeddings, read = embed_rows(embed, source, rows, map_fn=map_fn)
  labels = source.labels[read]
  try:
    result = verification.evaluate_pairs(embeddings, labels, **options)
  except errors.FieldError as error:
    said = f"{source.description} give no result: {error}"
    raise errors.DataError(said) from error
  return result, embeddings, labels


def open_unlabelled(
  folder: str, image_shape: ImageShape, *, on_bad_example: str, name: str
) -> ImageSource:
  """Opens all images in a folder and below it, each labelled with its row.

  Args:
    folder: The folder.
    image_shape: Shape that images are resized to.
    on_bad_example: One of `bad_examples.POLICIES`.
    name: Name of the folder in an error.

  Returns:
    The images, not yet read, folder by folder.

  Raises:
    errors.FieldError: If the folder has no images.
  """
  paths = image_folder_lib.list_all_images(folder, name=name)
  rows = np.arange(len(paths))
  return _open_files(folder, paths, rows, image_shape, on_bad_example)


def open_folder(
  folder: str,
  image_shape: ImageShape,
  *,
  on_bad_example: str,
  name: str = "image_folder",
  for_pairs: bool = True,
) -> ImageSource:
  """Opens a folder with one sub-folder a class.

  Args:
    folder: The folder.
    image_shape, on_bad_example: See `open_unlabelled`.
    name, for_pairs: See `image_folder.list_images`.

  Returns:
    The images, not yet read; labels count from 0.

  Raises:
    errors.FieldError: If there is no such folder, or too little in it.
  """
  listed = image_folder_lib.list_images(folder, name=name, for_pairs=for_pairs)
  return _open_files(
    folder,
    listed.paths,
    listed.labels,
    image_shape,
    on_bad_example,
    notes=_count_files("ignored", "non-image", listed.ignored),
    class_labels=np.arange(len(listed.class_names)),
    class_names=dict(enumerate(listed.class_names)),
    facts={"image_folder": folder, "num_ignored": len(listed.ignored)},
  )


def read_images(
  rows: np.ndarray,
  read_image: Callable[[int], np.ndarray],
  image_shape: ImageShape,
  skipped: list[str],
  *,
  on_bad_example: str,
) -> Batches:
  """Reads images one at a time; yields rows and images of a batch.

  Args:
    rows: Rows to read.
    read_image: Maps a row to its image; raises `ImageFolderError` if it cannot
      be read.
    image_shape: Shape of the images.
    skipped: Receives the names of images that cannot be read, each once.
    on_bad_example: One of `bad_examples.POLICIES`.

  Yields:
    Rows that could be read, int64 `[b]`, and their images, `[b, height, width,
    channels]`. A batch of which nothing can be read is left out.

  Raises:
    errors.DataError: If one cannot be read and is not to be skipped.
  """
  for some in _split(rows, image_shape):
    kept = []
    images = []
    for row in some:
      try:
        images.append(read_image(row))
        kept.append(row)
      except image_folder_lib.ImageFolderError as error:
        if on_bad_example == "fail":
          said = f"{error} on_bad_example=skip leaves such images out."
          raise errors.DataError(said) from error
        if error.path not in skipped:
          skipped.append(error.path)
    if images:
      yield np.array(kept), np.stack(images)


def _open_files(
  folder: str,
  paths: Sequence[pathlib.Path],
  labels: np.ndarray,
  image_shape: ImageShape,
  on_bad_example: str,
  **others: Any,
) -> ImageSource:
  """Opens files of a folder; others are fields of the source.

  Args:
    folder: The folder, for the description.
    paths: Files of the images, `[n]`.
    labels: int64 `[n]`.
    image_shape: Shape that images are resized to.
    on_bad_example: One of `bad_examples.POLICIES`.
    **others: Other fields of `ImageSource`.
  """
  skipped: list[str] = []

  def read_image(row: int) -> np.ndarray:
    return image_folder_lib.read_image(paths[row], image_shape)

  def read(rows: np.ndarray) -> Batches:
    return read_images(
      rows, read_image, image_shape, skipped, on_bad_example=on_bad_example
    )

  return ImageSource(
    f"images in {folder}", labels, read, paths=paths, skipped=skipped, **others
  )


def open_split(task: task_lib.Task, split: str) -> ImageSource:
  """Opens the held-out images of a split of a task.

  Args:
    task: The task.
    split: One of `task.EVALUATION_SPLITS`.

  Returns:
    The images; those that are held encoded are decoded a batch at a time.
  """
  images = task.load_images(split)

  def read(rows: np.ndarray) -> Batches:
    for some in _split(rows, task.image_shape):
      # Indexing may decode images, and find damaged ones.
      yield some, images.images[some]

  return ImageSource(
    f"{split} images of task {task.name}",
    images.labels,
    read,
    class_names=task.class_names,
  )


def _open_train(task: task_lib.Task) -> ImageSource:
  """Opens the training images of a task, user by user.

  All users are read once for the labels. To embed them, the users of the rows
  are read again, so no more than a batch of images is in memory.

  Args:
    task: The task.

  Returns:
    The images, with their users.

  Raises:
    errors.DataError: If the training data cannot be read.
  """
  everyone = np.arange(len(task.train_users))
  user_ids = np.array([task.train_users.user_id(i) for i in everyone.tolist()])
  all_slots = [np.zeros([0], np.int64)]
  all_labels = [np.zeros([0], np.int64)]
  with progress_lib.create_bar(
    "Listing images", unit="users", total=len(user_ids)
  ) as progress:
    for slot, _, label in _walk(task, user_ids, everyone):
      all_slots.append(np.full(len(label), slot))
      all_labels.append(label)
      progress.update(int(slot) + 1 - progress.n)
  slots = np.concatenate(all_slots)
  labels = np.concatenate(all_labels)
  users = user_ids[slots]

  def decode(images: list[Any], rows: np.ndarray) -> np.ndarray:
    if task.decode_images is None:
      return np.stack(images)
    encoded = np.array(images, object)
    return encoded_images.EncodedImages(
      lambda some: encoded[some],
      lambda row: f"a training image of user {users[rows[row]]}",
      len(images),
      task.image_shape,
    )[:]

  def read(rows: np.ndarray) -> Batches:
    chosen = np.unique(slots[rows])
    # Marks the rows that are asked for among all rows of the chosen users.
    is_wanted = np.isin(np.flatnonzero(np.isin(slots, chosen)), rows)
    batches = (images for _, images, _ in _walk(task, user_ids, chosen))
    everything = itertools.chain.from_iterable(batches)
    images = itertools.compress(everything, is_wanted)
    # Users have few images each; a model is fastest on many.
    for some in _split(rows, task.image_shape):
      yield some, decode(list(itertools.islice(images, len(some))), some)

  description = f"training images of task {task.name}"
  return ImageSource(description, labels, read, users=users)


def _walk(
  task: task_lib.Task, user_ids: np.ndarray, slots: np.ndarray
) -> Iterator[tuple[Any, ...]]:
  """Yields slots of users, and their images and labels by the batch.

  Args:
    task: The task.
    user_ids: Identifiers of all users, by slot.
    slots: Slots of the users to read, int64 `[u]`.

  Yields:
    A slot, images or encoded images `[b, ...]`, and labels int64 `[b]`.

  Raises:
    errors.DataError: If the data cannot be read.
  """

  def read_user(slot: tf.Tensor, client_id: tf.Tensor) -> tf.data.Dataset:
    return task.create_client_dataset(client_id).map(
      lambda batch: (slot, batch["x"], batch["y"])
    )

  # One pipeline for all users: building one for each takes longer than reading.
  batches = tf.data.Dataset.from_tensor_slices(
    (slots, user_ids[slots])
  ).flat_map(read_user)
  try:
    yield from batches.as_numpy_iterator()
  except tf.errors.OpError as error:
    raise errors.DataError(
      "data must be readable, found in the training examples of task"
      f" {task.name}: {error.message.splitlines()[0]}."
    ) from error
