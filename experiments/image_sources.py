"""Labelled images of a folder or a task, read a batch at a time to be embedded.

Labels are known before an image is decoded, so that those to embed can be
chosen by them.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import os
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm

from tasks import registry as task_registry
from tasks import task as task_lib
from tff_fedemb import errors
from tff_fedemb.data import bad_examples
from tff_fedemb.data import encoded_images
from tff_fedemb.data import image_folder as image_folder_lib
from tff_fedemb.evaluation import embedding

ImageShape = tuple[int, int, int]
# From ascending rows to batches of those that could be read, and their images,
# uint8 `[b, height, width, channels]`.
Reader = Callable[[np.ndarray], Iterator[tuple[np.ndarray, np.ndarray]]]

_NAMED_EXAMPLES = 5


@dataclasses.dataclass(frozen=True)
class ImageSource:
  """Labelled images, not yet read.

  Attributes:
    description: What they are, in a few words.
    labels: int64 `[n]`, each one of `class_labels`.
    read: Reads those of some rows.
    users: Whose an image is, str `[n]`, or `None` if that is not known.
    largest_value: That a pixel may have.
    skipped: What `read` left out, a name each; it grows.
    ignored: What is no image.
    notes: What the user should know beside that.
    class_labels: Labels of all classes, ascending, int64 `[c]`: also of those
      without an image here, if the source knows them; `None` for those that
      have one.
    class_names: What errors call them, `[c]`, or empty for their labels.
  """

  description: str
  labels: np.ndarray
  read: Reader
  users: np.ndarray | None = None
  largest_value: int = 255
  skipped: list[str] = dataclasses.field(default_factory=list)
  ignored: tuple[str, ...] = ()
  notes: tuple[str, ...] = ()
  class_labels: np.ndarray | None = None
  class_names: tuple[str, ...] = ()

  def __post_init__(self):
    if self.class_labels is None:
      object.__setattr__(self, "class_labels", np.unique(self.labels))

  def name_class(self, label: int) -> str:
    """What a user calls the class of a label."""
    if not self.class_names:
      return str(label)
    return self.class_names[np.searchsorted(self.class_labels, label)]

  @property
  def warnings(self) -> tuple[str, ...]:
    """What the user should know, and what went by unread up to now."""
    return self.notes + tuple(
      f"{len(names):,} {one if len(names) == 1 else many}: {name_some(names)}"
      for names, one, many in (
        (
          self.skipped,
          "file could not be read and was skipped",
          "files could not be read and were skipped",
        ),
        (
          self.ignored,
          "file in the folder is no image by its name",
          "files in the folder are no images by their name",
        ),
      )
      if names
    )


def name_some(names: Sequence[str]) -> str:
  """The first few of some names, and whether there are more."""
  more = ", ..." if len(names) > _NAMED_EXAMPLES else ""
  return ", ".join(names[:_NAMED_EXAMPLES]) + more


def draw_rows(
  rows: np.ndarray, max_images: int, generator: np.random.Generator
) -> np.ndarray:
  """At most `max_images` of the rows, 0 for all, at random and in order."""
  if not max_images or len(rows) <= max_images:
    return rows
  return np.sort(generator.choice(rows, size=max_images, replace=False))


def embed_rows(
  embed: Callable[[np.ndarray], np.ndarray],
  source: ImageSource,
  rows: np.ndarray,
  *,
  flag: str = "saved_model",
) -> tuple[np.ndarray, np.ndarray]:
  """Embeds images.

  Args:
    embed: From a batch of images to embeddings `[b, dim]`.
    source: Whose images.
    rows: Which ones, int64 `[m]`, ascending.
    flag: What the user chose the embedding by.

  Returns:
    Embeddings `[k, dim]`, and the rows that could be read, `[k]`.

  Raises:
    DataError: If an image cannot be read and is not to be skipped.
    FieldError: If an embedding is not finite.
  """
  embeddings = np.zeros([0, 1], np.float32)
  num_embedded = 0
  read = [np.zeros([0], np.int64)]
  with tqdm.tqdm(
    total=len(rows), desc="Embedding", unit=" images", disable=None
  ) as progress:
    for some, images in source.read(rows):
      batch = embed(images)
      if not np.isfinite(batch).all():
        raise errors.FieldError(
          flag, "give embeddings that are finite", "others"
        )
      if not num_embedded:
        # Of the final size: there may be no room to join batches later.
        embeddings = np.empty([len(rows), batch.shape[1]], batch.dtype)
      embeddings[num_embedded : num_embedded + len(batch)] = batch
      num_embedded += len(batch)
      read.append(some)
      progress.update(len(batch))
  return embeddings[:num_embedded], np.concatenate(read)


def open_folder(
  folder: str, image_shape: ImageShape, *, on_bad_example: str
) -> ImageSource:
  """Lists a folder of images.

  Args:
    folder: With one sub-folder a class.
    image_shape: Height, width and channels to make of each.
    on_bad_example: Whether an image that cannot be read is refused or skipped,
      one of `bad_examples.POLICIES`.

  Returns:
    The images.

  Raises:
    FieldError: If there is no such folder, or not enough in it.
  """
  listed = image_folder_lib.list_images(folder)
  # Sub-folders without an image are classes too: another folder of the same
  # classes may have images of them.
  names = sorted(
    path.name
    for path in pathlib.Path(folder).iterdir()
    if path.is_dir() and not path.name.startswith(".")
  )
  places = np.searchsorted(names, listed.class_names).astype(np.int64)
  skipped: list[str] = []

  def read(rows):
    return read_files(
      rows,
      lambda row: image_folder_lib.read_image(listed.paths[row], image_shape),
      lambda row: os.fspath(listed.paths[row]),
      image_shape,
      skipped,
      on_bad_example=on_bad_example,
    )

  return ImageSource(
    f"images in {folder}",
    places[listed.labels],
    read,
    skipped=skipped,
    ignored=tuple(os.fspath(path) for path in listed.ignored),
    class_labels=np.arange(len(names)),
    class_names=tuple(names),
  )


def read_files(
  rows: np.ndarray,
  read_image: Callable[[int], np.ndarray],
  name: Callable[[int], str],
  image_shape: ImageShape,
  skipped: list[str],
  *,
  on_bad_example: str,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
  """Reads images one at a time.

  Args:
    rows: Which ones.
    read_image: From a row to its image; an `ImageFolderError` tells that it
      cannot be read.
    name: From a row to what to call it.
    image_shape: Of the images.
    skipped: Takes the names of those that cannot be read.
    on_bad_example: One of `bad_examples.POLICIES`.

  Yields:
    Rows and images of a batch.

  Raises:
    DataError: If one cannot be read and is not to be skipped.
  """
  size = embedding.batch_size(image_shape)
  for start in range(0, len(rows), size):
    kept, images = [], []
    for row in rows[start : start + size]:
      try:
        images.append(read_image(row))
        kept.append(row)
      except image_folder_lib.ImageFolderError as error:
        if on_bad_example == "fail":
          raise errors.DataError(
            f"{error} --on_bad_example=skip leaves such images out."
          ) from error
        skipped.append(name(row))
    if images:
      yield np.array(kept), np.stack(images)


def open_task(
  name: str,
  task_config: task_lib.TaskConfig,
  split: str,
  *,
  model_shape: ImageShape | None,
) -> tuple[ImageSource, task_lib.Task]:
  """Opens the images of a task as a model takes them.

  Args:
    name: In the registry.
    task_config: Where its data are.
    split: "train", or one of `task.EVALUATION_SPLITS`.
    model_shape: Of the images that the model takes, `None` for no model.

  Returns:
    The images, and the task.

  Raises:
    DataError: If there are no such data, or they are damaged.
    FieldError: If the model takes others.
  """
  task = task_registry.create_task(name, task_config)
  if model_shape is not None:
    if task.decode_images is not None:
      # Photos are decoded to the size that the model takes.
      task = task_registry.create_task(
        name, dataclasses.replace(task_config, image_size=model_shape[0])
      )
    if task.image_shape != model_shape:
      raise errors.FieldError(
        "saved_model",
        f"take images of {list(task.image_shape)}, the size of task"
        f" {task.name}",
        list(model_shape),
      )
  source = open_train(task) if split == "train" else _open_held_out(task, split)
  left_out = task.bad_examples.lines
  notes = [f"left out {bad_examples.summarize(left_out)}"] if left_out else []
  return dataclasses.replace(source, notes=(*task.warnings, *notes)), task


def _open_held_out(task: task_lib.Task, split: str) -> ImageSource:
  images = task.load_images(split)
  size = embedding.batch_size(task.image_shape)

  def read(rows):
    for start in range(0, len(rows), size):
      some = rows[start : start + size]
      # Images may be decoded, and found to be damaged, where they are indexed.
      yield some, images.images[some]

  return ImageSource(f"{split} images of task {task.name}", images.labels, read)


def open_train(task: task_lib.Task) -> ImageSource:
  """Walks through the training images of a task, user by user.

  Args:
    task: Whose.

  Returns:
    The images, with their users.

  Raises:
    DataError: If the data of a user are damaged.
  """
  population = task.train_users
  user_ids = np.array([population.user_id(i) for i in range(len(population))])
  none = np.zeros([0], np.int64)
  slots_of_users, labels = [none], [none]
  for slot, _, label in _walk(task, user_ids, np.arange(len(user_ids))):
    labels.append(label)
    slots_of_users.append(np.full(len(label), slot))
  slots = np.concatenate(slots_of_users)
  users = user_ids[slots]
  decode = _build_train_decoder(task)
  size = embedding.batch_size(task.image_shape)

  def read(rows):
    chosen = np.unique(slots[rows])
    # Of what the chosen users have, which rows are asked for.
    wanted = np.isin(np.flatnonzero(np.isin(slots, chosen)), rows)
    pending: list[np.ndarray] = []
    num_seen = num_read = 0
    for _, images, label in _walk(task, user_ids, chosen):
      pending.append(images[wanted[num_seen : num_seen + len(label)]])
      num_seen += len(label)
      # Users have few images each; a model is fastest on many.
      num_pending = sum(map(len, pending))
      if num_pending >= size or num_seen == len(wanted):
        some = rows[num_read : num_read + num_pending]
        num_read += num_pending
        if num_pending:
          yield some, decode(np.concatenate(pending), users[some])
        pending = []

  return ImageSource(
    f"training images of task {task.name}",
    np.concatenate(labels),
    read,
    users,
  )


def _walk(
  task: task_lib.Task, user_ids: np.ndarray, slots: np.ndarray
) -> Iterator[tuple[Any, ...]]:
  """Yields slots of users, and their images and labels by the batch."""

  def read_user(slot, client_id):
    return task.create_client_dataset(client_id).map(
      lambda batch: (slot, batch["x"], batch["y"])
    )

  # One pipeline: to build one for each user takes longer than to read it.
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


def _build_train_decoder(
  task: task_lib.Task,
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
  """From images as clients hold them, and their users, to uint8 arrays."""
  if task.decode_images is None:
    return lambda images, users: images
  decode = tf.function(
    task.decode_images, input_signature=[tf.TensorSpec([None], tf.string)]
  )

  def decode_checked(contents, users):
    contents = contents.tolist()
    try:
      return decode(tf.constant(contents, tf.string)).numpy()
    except tf.errors.InvalidArgumentError as error:
      bad = encoded_images.find_unreadable(contents, task.image_shape)
      if not bad:
        raise
      lines = [f"{users[row]}: not an image that can be decoded" for row in bad]
      raise errors.DataError(
        f"data must be readable, found {bad_examples.summarize(lines)}."
        " --on_bad_example=skip leaves out what is bad."
      ) from error

  return decode_checked
