"""Tests of random characters in Omniglot's format.

Those of `strokes` check how they are drawn.
"""

import numpy as np
import tensorflow as tf

from tasks import omniglot
from tasks import task_config
from tasks.synthetic import characters


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
