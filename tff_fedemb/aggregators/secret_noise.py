"""Gaussian noise whose secret, tails and last digits deserve its epsilon.

Secret: the bits are those of two Philox generators (Salmon et al. 2011,
"Parallel Random Numbers: As Easy as 1, 2, 3"), added without carry. Each has a
key and an offset of 64 bits, 256 bits together, all from the operating system;
TensorFlow's own operations have 32 bits for a whole process. Philox is no
cipher: that nobody can tell its numbers from random ones without its key is
assumed, not proven.

Tails: Box and Muller 1958 in double precision, from 128 bits for the radius.
It reaches 13.3 standard deviations, TensorFlow's own 5.68.

Last digits: floating-point numbers near the sum and far from it differ in their
last bits, which gives a sum away (Mironov 2012, "On Significance of the Least
Significant Bits for Differential Privacy"). Sum and noise are therefore rounded
to a common grid g Z. With x a sum on the grid and N Gaussian, x + round(N) is
round(x + N): nothing but a function of what the Gaussian mechanism releases.
Rounding d numbers moves two sums apart by at most g sqrt(d), which g, a power
of two, keeps below 2^-10 clip norms; the noise is larger by as much. What is
left is bounded in docs/privacy.md.
"""

from collections.abc import Callable
import math
import secrets
from typing import Any

import tensorflow as tf
import tensorflow_privacy as tfp

# Share by which rounding may raise the sensitivity, and by which the standard
# deviation is raised for it.
ROUNDING = 2.0**-10
_UNIT = 2.0**-64
# Numbers that are drawn at a time: their intermediate results stay in the
# processor's cache.
_CHUNK = 2**16
_EXPONENT_BITS = 0x7FF0000000000000
_PHILOX = 1


def draw_words(shape: list[int]) -> tf.Tensor:
  """Draws int64 numbers that never come again, though they may be guessed.

  Args:
    shape: Of the numbers.
  """
  # Seeds of zero: other numbers in every call, whatever `tf.random.set_seed`.
  words = tf.raw_ops.RandomUniformInt(
    shape=shape,
    minval=tf.constant(tf.int64.min, tf.int64),
    maxval=tf.constant(tf.int64.max, tf.int64),
    seed=0,
    seed2=0,
  )
  # Two processes have the same ones once in 2^32; not at the same time.
  return tf.bitwise.bitwise_xor(words, tf.bitcast(tf.timestamp(), tf.int64))


def draw_key() -> list[int]:
  """Draws 256 secret bits from the operating system, as four int64 numbers."""
  return [secrets.randbits(64) - 2**63 for _ in range(4)]


def _random_words(
  seeds: tf.Tensor, word: int, chunk: tf.Tensor, shape: list[int]
) -> tf.Tensor:
  """One Philox generator's uint64 numbers of a chunk."""
  # A chunk takes less than 2^32 numbers of the generator.
  counter = tf.stack([tf.bitwise.left_shift(chunk, 32), seeds[word + 1]])
  return tf.raw_ops.StatelessRandomUniformFullIntV2(
    shape=shape,
    key=tf.bitcast(seeds[word : word + 1], tf.uint64),
    counter=tf.bitcast(counter, tf.uint64),
    alg=_PHILOX,
    dtype=tf.uint64,
  )


def standard_normal(seeds: tf.Tensor, chunk: tf.Tensor, size: int) -> tf.Tensor:
  """Draws independent standard normal numbers, a function of the seeds.

  Args:
    seeds: Key and offset of either generator, int64 `[4]`.
    chunk: Number of the chunk, int64; each has other numbers.
    size: Numbers of the chunk, at most 2^32.

  Returns:
    float64 `[size]`. Each is within 2^-49 of what exact arithmetic would make
    of the bits, up to 9, and within 2^-48 beyond.
  """
  shape = [2, (size + 1) // 2]
  low = _random_words(seeds, 2, chunk, shape)
  words = tf.bitwise.bitwise_xor(_random_words(seeds, 0, chunk, shape), low)
  # 128 bits: the radius has no last value, nor gaps between its values that
  # could be seen on the grid.
  uniform, missing = (
    (tf.cast(high, tf.float64) + (tf.cast(rest, tf.float64) + 0.5) * _UNIT)
    * _UNIT
    for high, rest in (
      (words[0], low[0]),
      (tf.bitwise.invert(words[0]), tf.bitwise.invert(low[0])),
    )
  )
  # Near 1 the digits are those of what is missing to it (Kahan's logarithm).
  logarithm = tf.where(
    uniform < 1.0,
    tf.math.log(uniform) * (missing / (1.0 - uniform)),
    -missing,
  )
  radius = tf.sqrt(-2.0 * logarithm)
  # Two bits choose one of four arcs, the others a place on it.
  angle = tf.bitcast(words[1], tf.int64)
  radius = tf.where(angle < 0, -radius, radius)
  is_upright = tf.bitwise.left_shift(angle, 1) < 0
  place = tf.cast(tf.bitwise.left_shift(angle, 2), tf.float64)
  sine, cosine = _sine_and_cosine(place * (math.pi / 2.0 * _UNIT))
  near, far = radius * cosine, radius * sine
  pairs = [
    tf.where(is_upright, far, near),
    tf.where(is_upright, near, far),
  ]
  return tf.concat(pairs, 0)[:size]


def _sine_and_cosine(angle: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """Taylor's series, to double precision up to pi / 4; TensorFlow's is slow."""
  square = tf.square(angle)
  series = []
  for first in (0, 1):
    total = tf.zeros_like(angle)
    for power in range(16 + first, -1, -2):
      total = total * square + (-1) ** (power // 2) / math.factorial(power)
    series.append(total)
  cosine, sine = series
  return angle * sine, cosine


def _by_chunks(
  function: Callable[[tf.Tensor, int], tf.Tensor], shape: tf.TensorShape
) -> tf.Tensor:
  """Puts together what a function makes of a chunk's number and size."""
  chunks, rest = divmod(shape.num_elements(), _CHUNK)
  parts = [function(tf.constant(chunks, tf.int64), rest)]
  if chunks:
    whole = tf.map_fn(
      lambda chunk: function(chunk, _CHUNK),
      tf.range(chunks, dtype=tf.int64),
      fn_output_signature=tf.TensorSpec([_CHUNK], tf.float32),
    )
    parts.insert(0, tf.reshape(whole, [-1]))
  return tf.reshape(tf.concat(parts, 0), shape)


def _power_of_two(value: tf.Tensor) -> tf.Tensor:
  """The largest power of two that is not above a float64."""
  bits = tf.bitwise.bitwise_and(tf.bitcast(value, tf.int64), _EXPONENT_BITS)
  return tf.bitcast(bits, tf.float64)


def _grid_of(clip_norm: Any, total: Any) -> tf.Tensor:
  """The grid for a nested sum, a power of two, scalar float64."""
  size = sum(tensor.shape.num_elements() for tensor in tf.nest.flatten(total))
  share = ROUNDING / math.sqrt(max(size, 1))
  return _power_of_two(tf.cast(clip_norm, tf.float64) * share)


def add_on_grid(total: Any, noise: Any, clip_norm: Any) -> Any:
  """Adds noise to a sum, each rounded to the grid before.

  Args:
    total: Nested float32 tensors.
    noise: The same structure.
    clip_norm: Scalar; the Python number 0 if there is no noise, nor rounding.
  """
  if isinstance(clip_norm, (int, float)) and not clip_norm:
    return tf.nest.map_structure(tf.add, total, noise)
  grid = tf.cast(_grid_of(clip_norm, total), tf.float32)

  def add(total, noise):
    return tf.round(total / grid) * grid + tf.round(noise / grid) * grid

  return tf.nest.map_structure(add, total, noise)


def _add_fresh_noise(
  total: tf.Tensor, seeds: tf.Tensor, stddev: tf.Tensor, grid: tf.Tensor
) -> tf.Tensor:
  """As `add_on_grid`, with noise drawn here and all in double precision."""
  flat = tf.reshape(total, [-1])
  scale = tf.cast(stddev, tf.float64) * (1.0 + ROUNDING) / grid

  def add(chunk, size):
    part = tf.slice(flat, [chunk * _CHUNK], [size])
    steps = tf.round(tf.cast(part, tf.float64) / grid)
    steps += tf.round(standard_normal(seeds, chunk, size) * scale)
    return tf.cast(steps * grid, tf.float32)

  return _by_chunks(add, total.shape)


class SecretGaussianSumQuery(tfp.GaussianSumQuery):
  """tensorflow-privacy's query with noise as the file's docstring has it.

  Privacy:
    Unit: one record.
    Neighbouring relation: zero-out of one record.
    Sensitivity: the clip norm, and 2^-10 of it for rounding, as much as the
      standard deviation is above what was asked for.
    DpEvent: `GaussianDpEvent`, as of the parent.

  The key is drawn when the query is made and is in no state and no checkpoint:
  a program that goes on after another one was killed draws other noise. Each
  draw has numbers of its own in the place of the generators' offsets.
  """

  def __init__(self, l2_norm_clip: float, stddev: float):
    """Creates the query.

    Args:
      l2_norm_clip: L2 norm to which a record is clipped.
      stddev: Of the noise; 0 for none, whatever the state.
    """
    super().__init__(l2_norm_clip, stddev)
    self._key = draw_key()

  def get_noised_result(self, sample_state, global_state):
    """Adds the noise of the round to the sum of its records."""
    if not self._stddev:
      _, state, event = super().get_noised_result((), global_state)
      return sample_state, state, event
    grid = _grid_of(global_state.l2_norm_clip, sample_state)
    tensors = tf.nest.flatten(sample_state)
    calls = draw_words([len(tensors), 4])
    noised = [
      _add_fresh_noise(
        tensor,
        tf.bitwise.bitwise_xor(self._key, call * [0, 1, 0, 1]),
        global_state.stddev,
        grid,
      )
      for tensor, call in zip(tensors, tf.unstack(calls), strict=True)
    ]
    _, state, event = super().get_noised_result((), global_state)
    return tf.nest.pack_sequence_as(sample_state, noised), state, event


class SecretNoiseGenerator(tfp.tree_aggregation.GaussianNoiseGenerator):
  """Noise from a secret seed that travels in the aggregator's state.

  Correlated noise is made over many rounds. What the later ones cancel must be
  what the earlier ones added, also when a program was killed in between: the
  noise is therefore a function of seeds that the checkpoint holds and that
  every tensor of every call counts up by one.

  Privacy:
    Key and offsets are drawn from the operating system when the generator is
    made. Each `initialize` mixes in other words, so that two runs of one
    process do not share their noise: the difference of two releases with the
    same noise would have none.

    Whoever reads the state sees through the noise: checkpoints are secret.
  """

  def __init__(
    self,
    noise_std: float,
    specs: tuple[tf.TensorSpec, ...],
    *,
    seed: int | None = None,
  ):
    """Creates the generator.

    Args:
      noise_std: Standard deviation of each number.
      specs: Shapes of a value, nested.
      seed: For tests: makes all runs share their noise, which voids privacy.
    """
    super().__init__(noise_std, specs, seed)
    self._key = draw_key() if seed is None else [seed, 0, seed, 1]

  def initialize(self):
    """Returns the state (seeds `[4]`, stddev) of a new run."""
    seeds = tf.constant(self._key, tf.int64)
    if self._seed is None:
      seeds = tf.bitwise.bitwise_xor(seeds, draw_words([4]))
    return self._GlobalState(seeds, tf.constant(self._noise_std, tf.float32))

  def next(self, state):
    """Returns a draw, float32 and nested as the specs, and the next state."""
    stddev = tf.cast(state.stddev, tf.float64) * (1.0 + ROUNDING)
    specs = tf.nest.flatten(self._specs)

    def draw(index, spec):
      return _by_chunks(
        lambda chunk, size: tf.cast(
          stddev * standard_normal(state.seeds + index, chunk, size), tf.float32
        ),
        spec.shape,
      )

    noise = [draw(index, spec) for index, spec in enumerate(specs)]
    return (
      tf.nest.pack_sequence_as(self._specs, noise),
      self._GlobalState(state.seeds + len(specs), state.stddev),
    )

  def make_state(self, seeds: tf.Tensor, stddev: tf.Tensor):
    """Returns the state of given seeds and standard deviation."""
    return self._GlobalState(
      tf.cast(tf.ensure_shape(seeds, [4]), tf.int64),
      tf.cast(stddev, tf.float32),
    )
