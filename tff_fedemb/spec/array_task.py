"""A task from arrays: images, their labels, and whose they are.

Use it in a notebook, or for data that fit into memory. A client's data set is
read from a temporary file of all rows, sorted by user: a graph that held the
arrays could not be larger than 2 GB, and every client would copy it.
"""

from __future__ import annotations

import atexit
import collections
from collections.abc import Iterator, Mapping
import dataclasses
import functools
import os
import shutil
import tempfile
from typing import Any

from etils import epy
import numpy as np

from tff_fedemb import errors
from tff_fedemb.data import arrays
from tff_fedemb.data import pipelines
from tff_fedemb.data import population
from tff_fedemb.records import chain
from tff_fedemb.spec import task as task_lib

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_fedemb.evaluation import embedding

_READING_BATCH = 64
_LABEL_BYTES = 8
# Default backbones by the number of axes of an example.
_BACKBONES = {1: "dense", 2: "conv1d", 3: "convnet"}


@dataclasses.dataclass(frozen=True)
class ArrayTask(task_lib.TaskSource):
  """Images, or vectors or sequences, with labels and users in arrays.

  Two tasks are equal if their names, and digests of all their arrays, are.

  Attributes:
    images: `[n, height, width, channels]`, to train on: integers in [0, 255],
      or floats that are, with those of `test` and `validation`, all in [0, 1]
      or all whole numbers in [0, 255]. Or finite floats of vectors `[n, size]`
      or sequences `[n, time, channels]`. Integers `[n, height, width]` are
      images of one channel.
    labels: Integers or strings `[n]`; training numbers them from 0.
    users: User of each image, `[n]`: strings, integers or dates, none missing.
    test: Images and labels to evaluate on.
    validation: The same, for evaluations during training; without, those of
      `test`, by which nothing is then chosen unless `keep` asks for it.
    held_out_users: Whether no image to evaluate on is of one of the users;
      only then does the guarantee cover what an evaluation tells.
    name: Name of the task.
    user_meaning: Meaning of a user, in a few words: the unit of privacy.

  Raises:
    errors.FieldError: If arrays differ in length, are empty, or hold something
      other than described.

  Examples:
    >>> images = np.zeros([24, 8, 8, 1], np.uint8)
    >>> labels, users = np.arange(24) % 4, np.arange(24) // 3
    >>> task = fe.ArrayTask(images, labels, users, test=(images, labels))
    >>> task.num_users
    8
  """

  # A notebook shows a spec and a result that end a cell: not their pixels.
  images: np.ndarray = dataclasses.field(repr=False)
  labels: np.ndarray = dataclasses.field(repr=False)
  users: np.ndarray = dataclasses.field(repr=False)
  test: tuple[np.ndarray, np.ndarray] = dataclasses.field(
    kw_only=True, repr=False
  )
  validation: tuple[np.ndarray, np.ndarray] | None = dataclasses.field(
    default=None, kw_only=True, repr=False
  )
  held_out_users: bool = dataclasses.field(default=False, kw_only=True)
  name: str = dataclasses.field(default="arrays", kw_only=True)
  user_meaning: str = dataclasses.field(default="a user", kw_only=True)

  def __post_init__(self):
    held_out = self._held_out
    for name, pair in held_out.items():
      if not isinstance(pair, tuple | list) or len(pair) != 2:
        kind = f"a {type(pair).__name__}"
        raise errors.FieldError(name, "be a pair (images, labels)", kind)
    given = {name: images for name, (images, _) in held_out.items()}
    images = _read({"images": self.images, **given})
    num_rows = len(images["images"])
    found: dict[str, Any] = {
      "images": images["images"],
      "labels": arrays.to_labels_or_texts("labels", self.labels, num_rows),
      "users": arrays.to_names("users", self.users, num_rows),
    }
    for name, (_, labels) in held_out.items():
      labels = arrays.to_labels_or_texts(name, labels, len(images[name]))
      if labels.dtype.kind != found["labels"].dtype.kind:
        must = "have labels that are strings if labels are, else integers"
        raise errors.FieldError(name, must, labels.dtype)
      found[name] = images[name], labels
    if self.validation is None:
      del found["validation"]
    for name, value in found.items():
      object.__setattr__(self, name, value)

  @property
  def _held_out(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Test and validation data by the name of the field.

    Without data for validation, those for test stand in.
    """
    validation = self.test if self.validation is None else self.validation
    return {"test": self.test, "validation": validation}

  def __eq__(self, other: object) -> bool:
    return isinstance(other, ArrayTask) and self.to_json() == other.to_json()

  def __hash__(self) -> int:
    return hash(self._digest)

  @functools.cached_property
  def _digest(self) -> str:
    """SHA-256, in hex, of all arrays; computed once."""
    train = (self.images, self.labels, self.users)
    return chain.digest_of([train, *self._held_out.values()])

  def to_json(self) -> dict[str, Any]:
    """Returns the shape of the images and a digest of all arrays.

    Returns:
      JSON values `name`, `images` (their shape) and `sha256` (of all arrays,
      those for test and validation included); and what else was said of the
      users, if anything.
    """
    values = {
      "name": self.name,
      "images": list(self.images.shape),
      "sha256": self._digest,
    }
    # Runs of before, in which nothing was said, stay the same runs.
    for name in ("held_out_users", "user_meaning"):
      said = getattr(self, name)
      if said != getattr(type(self), name):
        values[name] = said
    return values

  @classmethod
  def from_json(cls, values: Mapping[str, Any]) -> Any:
    """Returns a record in place of the arrays, which no digest can restore.

    Args:
      values: JSON values that `to_json` returned.

    Returns:
      A `task.RecordedTask`, whose `create` refuses.
    """
    kind = task_lib.SOURCES.name_of(cls)
    return task_lib.RecordedTask({"kind": kind, **values})

  @functools.cached_property
  def num_users(self) -> int:
    """Number of different users."""
    return len(np.unique(self.users))

  @property
  def num_train_users(self) -> int:
    """Number of different users: all of them train."""
    return self.num_users

  def create(self) -> task_lib.Task:
    """Creates the task, whose users are numbers in the order of their names.

    The rows are written to a temporary file when the first client's data are
    asked for. The file is removed when the program ends.

    Returns:
      A task whose training labels count from 0 in the order of the labels'
      values.
    """
    users, slots = np.unique(self.users, return_inverse=True)
    classes, labels = np.unique(self.labels, return_inverse=True)
    order = np.argsort(slots, kind="stable")
    starts = np.searchsorted(slots[order], np.arange(len(users) + 1))
    shape = self.images.shape[1:]
    held_out = self._held_out
    counts = {name: len(labels) for name, (_, labels) in held_out.items()}
    split = (
      f"{counts['validation']:,} images for validation and"
      f" {counts['test']:,} for test"
    )
    if self.validation is None:
      split = f"{counts['test']:,} images for test, and for validation too"
    pairs = np.unique(np.stack([slots, labels]), axis=1)
    held_out_classes = np.concatenate([y for _, y in held_out.values()])
    class_names: dict[int, str] = {}
    if self.labels.dtype.kind == "U":
      names = np.unique(held_out_classes)
      class_names.update(enumerate(names.tolist()))
      for name, (images, texts) in held_out.items():
        held_out[name] = images, np.searchsorted(names, texts)

    def load_images(split: str) -> embedding.LabelledImages:
      images, labels = held_out[split]
      return embedding.LabelledImages(images, labels)

    @functools.cache
    def write_file() -> str:
      directory = tempfile.mkdtemp(prefix="tff_fedemb_arrays_")
      atexit.register(shutil.rmtree, directory, ignore_errors=True)
      return write_rows(directory, self.images, labels, order)

    return task_lib.Task(
      name=self.name,
      user_meaning=self.user_meaning,
      train_users=population.Population(len(users)),
      create_client_dataset=lambda client_id: read_client(
        write_file(), client_id, starts, shape
      ),
      image_shape=shape,
      num_train_classes=len(classes),
      load_images=load_images,
      split_description=split,
      default_backbone=_BACKBONES[len(shape)],
      one_class_per_user=pairs.shape[1] == len(users),
      evaluation_on_training_users=not self.held_out_users,
      held_out_classes_are_new=not np.isin(held_out_classes, classes).any(),
      validates_on_test=self.validation is None,
      class_names=class_names,
      count_images={"train": len(self.labels), **counts}.__getitem__,
    )


def _read(given: Mapping[str, Any]) -> dict[str, np.ndarray]:
  """Reads images of all splits as uint8, or other examples as float32.

  Args:
    given: Arrays by the names of their fields, those of "images" among them.
      Whether floats are in [0, 1] is decided for all of them together.

  Returns:
    Arrays by name.

  Raises:
    errors.FieldError: If an array is empty, has another number of axes, or
      examples of another shape than those to train on.
  """
  read = {name: arrays.to_numbers(name, x) for name, x in given.items()}
  of_unit = all(map(arrays.are_of_unit, read.values()))
  for name, examples in read.items():
    if examples.ndim == 3 and examples.dtype.kind != "f":
      examples = examples[..., np.newaxis]
    if examples.ndim == 4:
      read[name] = arrays.to_pixels(name, examples, of_unit=of_unit)
    elif examples.dtype.kind == "f" and examples.ndim in (2, 3):
      read[name] = arrays.to_floats(name, examples)
    else:
      raise errors.FieldError(
        name,
        "hold images [n, height, width, channels], or other examples as floats"
        " [n, size] or [n, time, channels]",
        f"{examples.dtype} {list(examples.shape)}",
      )
    if not len(examples):
      raise errors.FieldError(name, "hold an example", "none")
    shape = read["images"].shape[1:]
    if examples.shape[1:] != shape:
      raise errors.FieldError(
        name,
        f"hold images of {list(shape)}, as those to train on",
        list(examples.shape[1:]),
      )
  return read


def write_rows(
  directory: str, images: np.ndarray, labels: np.ndarray, order: np.ndarray
) -> str:
  """Writes label and numbers of every row to a file.

  Args:
    directory: Folder of the file.
    images: Examples `[n, ...]`, uint8 or float32.
    labels: Integers `[n]`.
    order: The rows in the order in which they are written.

  Returns:
    The path: `read_client` reads it.

  Raises:
    OSError: If the file cannot be written, for example on a full disk.
  """
  path = os.path.join(directory, "rows")
  with open(path, "wb") as file:
    for row in order:
      file.write(np.int64(labels[row]).tobytes())
      file.write(np.ascontiguousarray(images[row]).data)
  return path


def read_client(
  path: str,
  client_id: Any,
  starts: np.ndarray,
  image_shape: tuple[int, ...],
) -> Any:
  """Reads the rows of a virtual client's users, by TensorFlow operations only.

  Args:
    path: File that `write_rows` wrote, of rows that are sorted by user.
    client_id: Numbers of the users, as text `[]`.
    starts: First row of each user, and the number of rows, `[users + 1]`.
    image_shape: Shape of an example.

  Returns:
    A data set of batches, `x` of shape `[b, *image_shape]` and `y` `[b]` int64.
  """
  dtype = pipelines.dtype_of(image_shape)
  record_bytes = _LABEL_BYTES + dtype.itemsize * int(np.prod(image_shape))
  ends = tf.constant(starts, tf.int64) * record_bytes

  def read_user(slot: tf.Tensor) -> tf.data.Dataset:
    return tf.data.FixedLengthRecordDataset(
      path,
      record_bytes,
      header_bytes=ends[slot],
      footer_bytes=ends[-1] - ends[slot + 1],
    )

  def parse(rows: tf.Tensor) -> Mapping[str, Any]:
    labels = tf.strings.substr(rows, 0, _LABEL_BYTES)
    labels = tf.io.decode_raw(labels, tf.int64)[:, 0]
    images = tf.strings.substr(rows, _LABEL_BYTES, record_bytes)
    images = tf.io.decode_raw(images, dtype)
    images = tf.reshape(images, [-1, *image_shape])
    return collections.OrderedDict(x=images, y=labels)

  users = tf.strings.split(client_id, population.SEPARATOR)
  slots = tf.strings.to_number(users, tf.int64)
  rows = tf.data.Dataset.from_tensor_slices(slots).flat_map(read_user)
  return rows.batch(_READING_BATCH).map(parse)


def from_client_data(
  train: tff.simulation.datasets.ClientData,
  *,
  test: tff.simulation.datasets.ClientData,
  image_key: str = "pixels",
  label_key: str = "label",
  name: str = "client_data",
) -> ArrayTask:
  """Creates a task from TFF's client data, which are read into memory.

  Client ids become the users of the task. Images without a channel axis get
  one.

  Args:
    train: Its clients are the users who train.
    test: Its examples are evaluated on, whichever client they belong to.
    image_key: Key of an image in an example, `[height, width]` or `[height,
      width, channels]`: integers in [0, 255], or floats that are all in [0, 1]
      or all whole numbers in [0, 255], in both data.
    label_key: Key of the label in an example, an integer or a string.
    name: Name of the task.

  Returns:
    The task, of the examples of all clients.

  Raises:
    errors.FieldError: If there is no example, none with such keys, or they hold
      something else.

  Examples:
    >>> import tensorflow_federated as tff
    >>> clients = {
    ...   user: {"pixels": np.zeros([3, 8, 8], np.float32), "label": [0, 1, 2]}
    ...   for user in ("ann", "bob")
    ... }
    >>> data = tff.simulation.datasets.TestClientData(clients)
    >>> fe.from_client_data(data, test=data).num_users
    2
  """
  rows = list(_read_clients("train", train, image_key, label_key))
  split = len(rows)
  rows += _read_clients("test", test, image_key, label_key)
  images, labels, users = map(list, zip(*rows, strict=True))
  # Both have one scale, since black pictures alone do not show theirs.
  pixels = arrays.to_pixels(image_key, images, whose=users)
  if pixels.ndim == 3:
    pixels = pixels[..., np.newaxis]
  classes = np.array(labels, object)
  return ArrayTask(
    pixels[:split],
    classes[:split],
    np.array(users[:split], object),
    test=(pixels[split:], classes[split:]),
    name=name,
  )


def _read_clients(
  name: str,
  data: tff.simulation.datasets.ClientData,
  image_key: str,
  label_key: str,
) -> Iterator[tuple[Any, Any, Any]]:
  """Yields image, label and client of each example.

  Args:
    name: Name of the data in an error.
    data: Client data, read one client after the other.
    image_key: Key of the image in an example.
    label_key: Key of the label in an example.

  Raises:
    errors.FieldError: If there is none, or it has no such key.
  """
  keys = {"image_key": image_key, "label_key": label_key}
  found = None
  for client in data.client_ids:
    dataset = data.create_tf_dataset_for_client(client)
    for found in dataset.as_numpy_iterator():
      for field, key in keys.items():
        if key not in found:
          must = f"be one of {', '.join(sorted(found))}"
          raise errors.FieldError(field, must, repr(key))
      yield found[image_key], found[label_key], client
  if found is None:
    raise errors.FieldError(name, "have clients with examples", "none")
