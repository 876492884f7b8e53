"""Tests of noise from a secret seed."""

import numpy as np
import tensorflow as tf

from tff_fedemb.aggregators import secret_noise

_SPECS = (tf.TensorSpec([2, 3]), tf.TensorSpec([]), tf.TensorSpec([4]))


def _seeds(generator):
  return generator.initialize().seeds.numpy()


def test_every_draw_has_a_seed_of_its_own(monkeypatch):
  used = []
  stateless_normal = tf.random.stateless_normal

  def record(shape, seed, **options):
    used.append(tuple(np.asarray(seed).tolist()))
    return stateless_normal(shape=shape, seed=seed, **options)

  monkeypatch.setattr(tf.random, "stateless_normal", record)
  generator = secret_noise.SecretNoiseGenerator(1.0, _SPECS)
  state = generator.initialize()
  for _ in range(40):
    _, state = generator.next(state)
  assert len(used) == 40 * len(_SPECS)
  assert len(set(used)) == len(used)
  # Each word by itself too.
  for words in zip(*used, strict=True):
    assert len(set(words)) == len(used)


def test_shapes_and_scale():
  generator = secret_noise.SecretNoiseGenerator(2.5, _SPECS, seed=3)
  noise, state = generator.next(generator.initialize())
  assert [tuple(t.shape) for t in noise] == [(2, 3), (), (4,)]
  assert state.stddev.numpy() == 2.5
  # 20,000 numbers: the standard error is 0.5 %; bounds at five.
  generator = secret_noise.SecretNoiseGenerator(
    2.5, (tf.TensorSpec([20_000]),), seed=3
  )
  (noise,), _ = generator.next(generator.initialize())
  assert abs(noise.numpy().std() / 2.5 - 1.0) < 0.025
  generator = secret_noise.SecretNoiseGenerator(0.0, _SPECS)
  noise, _ = generator.next(generator.initialize())
  assert all(np.all(tensor.numpy() == 0.0) for tensor in noise)


def test_runs_and_generators_differ_in_all_their_bits():
  # Not the time of day, and no word bounded to a part of the range. Each bit of
  # 400 is set in a share of 1/2, with a standard error of 2.5 %; bounds at
  # seven: false alarm below once in 10^9 runs for all 128 together.
  # Two of 1,600 words are equal by chance once in 10^13 runs.
  generators = [
    secret_noise.SecretNoiseGenerator(1.0, _SPECS) for _ in range(400)
  ]
  seeds = np.array([_seeds(generator) for generator in generators])
  again = [_seeds(generator) for generator in generators]
  assert len(np.unique([seeds, again])) == 1600
  bits = seeds.view(np.uint64)[..., np.newaxis] >> np.arange(64, dtype="u8")
  shares = np.mean(bits & np.uint64(1), axis=0)
  assert np.all(np.abs(shares - 0.5) < 7 * 0.025)


def test_seed_of_the_program_does_not_make_runs_alike():
  # Whoever seeds TensorFlow for the sake of the data gets no known noise.
  seeds = []
  for _ in range(2):
    tf.random.set_seed(1)
    generator = secret_noise.SecretNoiseGenerator(1.0, _SPECS)
    seeds.append(_seeds(generator))
  assert np.all(seeds[0] != seeds[1])


def test_seed_wraps_around():
  # The words may start anywhere.
  generator = secret_noise.SecretNoiseGenerator(1.0, _SPECS)
  state = generator.initialize()._replace(
    seeds=tf.constant([tf.int64.max] * 2, tf.int64)
  )
  noise, state = generator.next(state)
  np.testing.assert_array_equal(
    state.seeds, [tf.int64.min + len(_SPECS) - 1] * 2
  )
  assert all(np.all(np.isfinite(tensor)) for tensor in noise)
