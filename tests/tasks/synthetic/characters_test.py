"""Tests of random characters in Omniglot's format."""

import numpy as np
import tensorflow as tf

from tasks import omniglot
from tasks import task_config
from tasks.synthetic import characters


def test_a_character_is_drawn_alike_and_unlike_others():
  drawn = np.stack([characters.draw_images(1, n, 8) for n in range(12)])
  assert (drawn.shape, drawn.dtype) == ((12, 8, 28, 28), np.uint8)
  # Ink on white paper, in the middle: none at the edge of most images.
  assert 0.02 < (drawn < 128).mean() < 0.3
  assert (drawn[..., [0, -1], :] > 128).mean() > 0.97
  flat = 255.0 - drawn.reshape(96, -1)
  flat -= flat.mean(axis=1, keepdims=True)
  flat /= np.linalg.norm(flat, axis=1, keepdims=True)
  similar = (flat @ flat.T).reshape(12, 8, 12, 8)
  same = np.einsum("aiaj->aij", similar)
  # No image is drawn twice.
  off_diagonal = same[:, ~np.eye(8, dtype=bool)]
  assert off_diagonal.max() < 0.99
  others = np.stack([similar[a, :, a - 1] for a in range(12)])
  assert off_diagonal.mean() > 2 * others.mean()


def test_task_omniglot_reads_them(tmp_path):
  path = characters.write_characters(tmp_path, num_users=60, seed=2)
  with np.load(path) as arrays:
    np.testing.assert_array_equal(
      arrays["images"][20:40], characters.draw_images(2, 1)
    )
  created = omniglot.create_omniglot_task(
    task_config.TaskConfig(data_dir=str(tmp_path), cache_dir=str(tmp_path))
  )
  # 6 of 30 alphabets of two characters are for test, 3 for validation.
  assert created.num_train_classes == len(created.train_users) == 42
  assert len(created.load_images("test").labels) == 6 * 2 * 20
  first = tf.constant(created.train_users.user_id(0))
  (batch,) = created.create_client_dataset(first)
  assert batch["x"].shape == (20, 28, 28, 1)
