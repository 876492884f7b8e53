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

from benchmarks import cases
from tasks import gld
from tasks import task_config
from tff_fedemb.data import tfrecord_files
from tff_fedemb.run import task as task_lib

_QUALITY = 90
_NUM_EDGES = 12
# The amplitude spectrum of a photograph is about 1 / f; a little steeper here,
# as edges add to it. Standard deviations of texture and sensor, in 255ths.
_EXPONENT, _CONTRAST, _GRAIN = 1.25, 35.0, 2.5
# The task needs a test set with classes for validation (4) and for test.
_TEST_FILE, _TEST_LABELS = "test.tfRecord", (0, 4)


def draw_photo(
  generator: np.random.Generator, height: int, width: int
) -> np.ndarray:
  """Draws shapes with sharp edges, the texture of a photograph and its grain.

  Returns uint8 `[height, width, 3]`.
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
  return tfrecord_files.serialize_image(content.getvalue(), label)


def _write_gld(directory: pathlib.Path, case: cases.Case) -> None:
  """Writes users "0", "1", ... and a test set that nobody looks at."""
  generator = np.random.default_rng(0)
  train = directory / "gld160k" / "train"
  train.mkdir(parents=True)
  shape = (case.photos.num_users, case.steps * case.batch_size)
  labels = generator.integers(0, case.num_classes, shape).tolist()
  files = {train / str(user): of_user for user, of_user in enumerate(labels)}
  for path, of_file in (files | {_TEST_FILE: _TEST_LABELS}).items():
    tfrecord_files.write_records(
      train.parent / path,
      [_create_record(generator, case.photos.size, x) for x in of_file],
    )


def _decoded(task: task_lib.Task, directory: pathlib.Path) -> task_lib.Task:
  """Writes the pixels and labels of all users; returns the task on them."""
  directory.mkdir()
  for slot in range(len(task.train_users)):
    user_id = task.train_users.user_id(slot)
    (examples,) = task.create_client_dataset(tf.constant(user_id))
    pixels = task.decode_images(examples["x"]).numpy()
    (directory / f"{user_id}.pixels").write_bytes(pixels.tobytes())
    labels = examples["y"].numpy()
    (directory / f"{user_id}.labels").write_bytes(labels.tobytes())

  def create_dataset(client_id):
    path = tf.strings.join([os.path.join(directory, ""), client_id])
    pixels = tf.io.decode_raw(tf.io.read_file(path + ".pixels"), tf.uint8)
    labels = tf.io.decode_raw(tf.io.read_file(path + ".labels"), tf.int64)
    images = tf.reshape(pixels, [-1, *task.image_shape])
    return tf.data.Dataset.from_tensors(
      collections.OrderedDict(x=images, y=labels)
    )

  return dataclasses.replace(
    task,
    create_client_dataset=create_dataset,
    decode_images=None,
    find_bad_examples=task_lib.find_none,
  )


def create_task(
  directory: str | os.PathLike[str], case: cases.Case
) -> task_lib.Task:
  """Writes photos and creates the task of Google Landmarks v2 on them.

  Args:
    directory: An empty folder, which gets some megabytes of each user.
    case: Whose photos to write; the same photos with the same labels for the
      same sizes and numbers, whether they are decoded or not.

  Returns:
    The task of users "0", "1" and so on, with no `decode_images` if the
    photos are decoded.
  """
  directory = pathlib.Path(directory)
  _write_gld(directory, case)
  task = gld.create_gld_task(
    task_config.TaskConfig(
      data_dir=os.fspath(directory),
      cache_dir=os.fspath(directory / "cache"),
      image_size=case.image_shape[0],
    )
  )
  return (
    _decoded(task, directory / "decoded") if case.photos.is_decoded else task
  )
