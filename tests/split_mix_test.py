"""Tests for split_mix."""

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
