"""Tests for split_mix."""

import numpy as np
import tensorflow as tf

from tff_fedemb import split_mix

# The first numbers of seed 1234567 by the generator's public reference code.
_PUBLISHED = [
  6457827717110365317,
  3203168211198807973,
  9817491932198370423,
  4593380528125082431,
  16408922859458223821,
]


def test_numbers_are_those_that_are_published():
  states = [(1234567 + n * split_mix.GAMMA) % 2**64 for n in range(1, 6)]
  found = split_mix.mix(tf.constant(states, tf.uint64))
  assert found.numpy().tolist() == _PUBLISHED


def test_keys_of_parts_differ_by_user_part_and_purpose():
  users = split_mix.derive_population_keys(1, tf.range(100, dtype=tf.int64))
  others = split_mix.derive_population_keys(2, tf.range(100, dtype=tf.int64))
  parts = [
    split_mix.derive_keys(users, part, purpose)
    for part in (0, 1)
    for purpose in (2, 3)
  ]
  every = np.concatenate([users, others, *parts])
  assert len(np.unique(every)) == 600


def test_draws_are_uniform_and_normal():
  keys = split_mix.derive_population_keys(1, tf.range(5_000, dtype=tf.int64))
  uniforms = split_mix.draw_uniforms(keys, 3)
  assert uniforms.shape == (5_000, 3, 4)
  assert 0.0 < tf.reduce_min(uniforms) < tf.reduce_max(uniforms) < 1.0
  counts, _ = np.histogram(uniforms, bins=10, range=(0, 1))
  np.testing.assert_allclose(counts, 6_000, rtol=0.05)
  normals = split_mix.sum_to_normals(uniforms).numpy()
  np.testing.assert_allclose(normals.mean(axis=0), 0.0, atol=0.05)
  np.testing.assert_allclose(np.cov(normals.T), np.eye(3), atol=0.06)
