"""Photos in files, as the task of Google Landmarks v2 has them, encoded or not.

Weyand et al., "Google Landmarks Dataset v2", CVPR 2020; its files are those of
`tasks.gld`. What the pictures show does not matter here, but what it costs to
decode them does: their spectrum and their edges are like those of photographs,
and so are the sizes of the files.
"""

import collections
import dataclasses
import io
import os
import pathlib

import numpy as np
from PIL import Image
from PIL import ImageDraw
import tensorflow as tf

from tasks import gld
from tasks import task as task_lib
from tff_fedemb.data import tfrecord_layout
from tff_fedemb.data import tfrecord_writing

_QUALITY = 90
_NUM_EDGES = 12
# The amplitude spectrum of a photograph is about 1 / f; a little steeper here,
# as edges add to it. Standard deviations of texture and sensor, in 255ths.
_EXPONENT, _CONTRAST, _GRAIN = 1.25, 35.0, 2.5
# What the task needs of a test set: classes for validation (4) and for test.
_TEST_LABELS = (0, 4)
_READING_BATCH = 64


@dataclasses.dataclass(frozen=True)
class Photos:
  """What the users of a case have taken.

  Attributes:
    num_users: How many users there are.
    size: Height and width of the largest photos, in pixels.
    is_decoded: Whether the files hold pixels of the size that is needed instead
      of the encoded photos.
  """

  num_users: int
  size: tuple[int, int]
  is_decoded: bool = False


def draw_photo(
  generator: np.random.Generator, height: int, width: int
) -> np.ndarray:
  """Draws shapes with sharp edges, the texture of a photograph and its grain.

  Args:
    generator: Source of randomness.
    height: In pixels.
    width: In pixels.

  Returns:
    uint8 `[height, width, 3]`.
  """
  shapes = Image.new("RGB", (width, height), (128, 128, 128))
  canvas = ImageDraw.Draw(shapes)
  for _ in range(_NUM_EDGES):
    corners = generator.random((4, 2)) * (width, height)
    colour = tuple(generator.integers(60, 196, 3).tolist())
    canvas.polygon([tuple(corner) for corner in corners.tolist()], colour)
  frequencies = np.hypot(
    np.fft.fftfreq(height)[:, np.newaxis] * height / width,
    np.fft.rfftfreq(width),
  )
  frequencies[0, 0] = np.inf
  white = np.fft.rfft2(generator.standard_normal((height, width)))
  texture = np.fft.irfft2(white / frequencies**_EXPONENT, (height, width))
  texture *= _CONTRAST / texture.std()
  grain = _GRAIN * generator.standard_normal((height, width, 3))
  pixels = np.asarray(shapes) + texture[..., np.newaxis] + grain
  return np.clip(np.round(pixels), 0, 255).astype(np.uint8)


def _create_record(
  generator: np.random.Generator, size: tuple[int, int], label: int
) -> bytes:
  """Draws a photo of about a size, upright or wide, and serialises it."""
  height, width = np.round(
    np.array(size) * generator.uniform(0.9, 1.0, 2)
  ).astype(int)
  if generator.random() < 0.25:
    height, width = width, height
  content = io.BytesIO()
  Image.fromarray(draw_photo(generator, height, width)).save(
    content, "JPEG", quality=_QUALITY
  )
  return tfrecord_writing.serialize_image(content.getvalue(), label)


def _write_gld(
  directory: pathlib.Path,
  photos: Photos,
  *,
  images_per_user: int,
  num_classes: int,
) -> None:
  """Writes users "0", "1", ... and a test set that nobody looks at."""
  generator = np.random.default_rng(0)
  train = directory / "gld160k" / "train"
  train.mkdir(parents=True)
  for user in range(photos.num_users):
    labels = generator.integers(0, num_classes, images_per_user)
    tfrecord_writing.write_records(
      train / str(user),
      [
        _create_record(generator, photos.size, label)
        for label in labels.tolist()
      ],
    )
  tfrecord_writing.write_records(
    train.parent / "test.tfRecord",
    [_create_record(generator, photos.size, label) for label in _TEST_LABELS],
  )


def _write_decoded(task: task_lib.Task, directory: pathlib.Path) -> None:
  """Writes the pixels of all users' images, in the same kind of files."""
  directory.mkdir()
  for slot in range(len(task.train_users)):
    user_id = task.train_users.user_id(slot)
    records = []
    for batch in task.create_client_dataset(tf.constant(user_id)):
      images = task.decode_images(batch["x"]).numpy()
      for image, label in zip(images, batch["y"].numpy(), strict=True):
        records.append(
          tfrecord_writing.serialize_image(image.tobytes(), int(label))
        )
    tfrecord_writing.write_records(directory / user_id, records)


def _create_decoded_dataset(
  client_id: tf.Tensor,
  directory: pathlib.Path,
  image_shape: tuple[int, int, int],
) -> tf.data.Dataset:
  def parse(serialized):
    features = tf.io.parse_example(
      serialized,
      {
        tfrecord_layout.IMAGE_FEATURE: tf.io.FixedLenFeature([], tf.string),
        tfrecord_layout.CLASS_FEATURE: tf.io.FixedLenFeature([], tf.int64),
      },
    )
    pixels = tf.io.decode_raw(features[tfrecord_layout.IMAGE_FEATURE], tf.uint8)
    return collections.OrderedDict(
      x=tf.reshape(pixels, [-1, *image_shape]),
      y=features[tfrecord_layout.CLASS_FEATURE],
    )

  path = tf.strings.join([os.path.join(directory, ""), client_id])
  return tf.data.TFRecordDataset(path).batch(_READING_BATCH).map(parse)


def create_task(
  directory: str | os.PathLike[str],
  photos: Photos,
  *,
  images_per_user: int,
  num_classes: int,
  side: int,
) -> task_lib.Task:
  """Writes photos and creates the task of Google Landmarks v2 on them.

  Args:
    directory: An empty folder to write to, which holds some megabytes of each
      user.
    photos: What to write; the same photos with the same labels for the same
      sizes and numbers, whether they are decoded or not.
    images_per_user: Images of each user.
    num_classes: Labels are drawn from [0, num_classes).
    side: Of the square images that the model is given, in pixels.

  Returns:
    The task, whose users are "0", "1" and so on. If the photos are decoded it
    has no `decode_images`.
  """
  directory = pathlib.Path(directory)
  _write_gld(
    directory,
    photos,
    images_per_user=images_per_user,
    num_classes=num_classes,
  )
  task = gld.create_gld_task(
    task_lib.TaskConfig(
      data_dir=os.fspath(directory),
      cache_dir=os.fspath(directory / "cache"),
      image_size=side,
    )
  )
  if not photos.is_decoded:
    return task
  decoded = directory / "decoded"
  _write_decoded(task, decoded)
  return dataclasses.replace(
    task,
    create_client_dataset=lambda client_id: _create_decoded_dataset(
      client_id, decoded, task.image_shape
    ),
    decode_images=None,
    find_bad_examples=None,
  )
