"""Gaussian noise whose secrecy, tails and last digits justify its epsilon.

Secrecy: a Philox generator (Salmon et al. 2011, "Parallel Random Numbers: As
Easy as 1, 2, 3") makes the bits. Its key and its offset are 64 bits each from
the operating system; TensorFlow's own operations have 32 bits for a whole
process. An attacker who knew a block of the generator, 128 bits, could search
for the key. Each block makes two numbers, and the grid below shows some 27 bits
of each. Philox is not a cipher: it is assumed, not proven, that its numbers
cannot be told from random ones without the key.

Tails: those of `normal_numbers`.

Last digits: floating-point numbers near the sum and far from it differ in their
last bits, which gives a sum away (Mironov 2012, "On Significance of the Least
Significant Bits for Differential Privacy"). Sum and noise are therefore rounded
to a common grid g Z. If x is a sum on the grid and N is Gaussian, x + round(N)
is round(x + N), a function of the Gaussian mechanism's release alone. Rounding
d numbers moves two sums apart by at most g sqrt(d). The power of two g keeps
this below 2^-10 clip norms, and the noise is larger by the same share.
docs/privacy.md bounds the remaining error.
"""

from collections.abc import Callable, Sequence
import math
import secrets
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_privacy as tfp
import tree

from tff_fedemb.mechanisms import exact_sums
from tff_fedemb.mechanisms import normal_numbers

# Rounding may raise the sensitivity by this share, so the standard deviation is
# raised by the same share.
ROUNDING = 2.0**-10
# How many numbers are drawn at a time: their intermediate results stay in the
# processor's cache.
_CHUNK = 2**15

_Correlate = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


def draw_words(shape: list[int]) -> tf.Tensor:
  """Draws int64 numbers that are not repeated, though they may be guessed.

  Args:
    shape: Shape of the numbers.

  Returns:
    Int64 numbers of this shape, new ones whenever the operation runs.
  """
  # With seeds of zero, every call has other numbers, whatever
  # `tf.random.set_seed`.
  words = tf.raw_ops.RandomUniformInt(
    shape=tf.constant(shape, tf.int32),
    minval=tf.constant(tf.int64.min, tf.int64),
    maxval=tf.constant(tf.int64.max, tf.int64),
    seed=0,
    seed2=0,
  )
  # Two processes draw the same numbers once in 2^32, but not at the same time.
  return tf.bitwise.bitwise_xor(words, tf.bitcast(tf.timestamp(), tf.int64))


def draw_key() -> list[int]:
  """Draws 128 secret bits from the operating system.

  Returns:
    Two int64 numbers: a key and an offset of the generator.
  """
  return [secrets.randbits(64) - 2**63 for _ in range(2)]


# Nothing here needs autograph, whose analysis would take long.
@tf.autograph.experimental.do_not_convert
def _by_chunks(
  function: Callable[[tf.Tensor, tf.Tensor, int], tuple[tf.Tensor, ...]],
  shape: tf.TensorShape,
  rows_of_outputs: Sequence[Sequence[int]] = ((),),
) -> list[tf.Tensor]:
  """Computes tensors by chunks of numbers.

  Args:
    function: Maps a chunk's number, its start and its size to the chunk's
      numbers for each output, `[*rows, size]`.
    shape: Shape of each output, without rows.
    rows_of_outputs: For each output no number, or that of its rows.

  Returns:
    The outputs, float32 `[*rows, *shape]`.
  """
  num_elements = shape.num_elements()
  # Without a smaller chunk at the end, nothing is copied once more.
  sizes = range(_CHUNK, _CHUNK // 2, -1)
  size = next((s for s in sizes if num_elements % s == 0), _CHUNK)
  chunks, rest = divmod(num_elements, size)
  parts = []
  if chunks:
    specs = [tf.TensorSpec([*rows, size]) for rows in rows_of_outputs]
    whole = tf.map_fn(
      lambda chunk: function(chunk, chunk * size, size),
      tf.range(chunks, dtype=tf.int64),
      fn_output_signature=tuple(specs),
    )
    parts.append(
      [
        _join_chunks(output, [*rows, chunks * size])
        for output, rows in zip(whole, rows_of_outputs, strict=True)
      ]
    )
  if rest or not chunks:
    last = tf.constant(chunks, tf.int64)
    parts.append(list(function(last, last * size, rest)))
  outputs = []
  for *pieces, rows in zip(*parts, rows_of_outputs, strict=True):
    flat = tf.concat(pieces, -1) if len(pieces) > 1 else pieces[0]
    outputs.append(tf.reshape(flat, [*rows, *shape]))
  return outputs


def _join_chunks(output: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
  """Joins `[chunks, *rows, size]` to `[*rows, chunks size]`, of this shape."""
  if len(shape) > 1:
    output = tf.transpose(output, [1, 0, 2])
  return tf.reshape(output, shape)


def _grid_of(clip_norm: Any, total: Any) -> tf.Tensor:
  """The grid for a nested sum, a power of two, scalar float64.

  Args:
    clip_norm: L2 norm to which the summands were clipped, scalar.
    total: Nested tensors of d numbers in all; the grid is at most 2^-10
      clip norms / sqrt(d).
  """
  size = sum(tensor.shape.num_elements() for tensor in tf.nest.flatten(total))
  share = ROUNDING / math.sqrt(max(size, 1))
  return exact_sums.power_of_two(tf.cast(clip_norm, tf.float64) * share)


def add_noise(
  total: Any,
  seeds: tf.Tensor,
  stddev: Any,
  clip_norm: Any,
  *,
  remembered: Any = None,
  correlate: _Correlate | None = None,
  kept_rows: Sequence[int] = (),
) -> tuple[Any, Any]:
  """Draws noise and adds it after rounding sum and noise to the grid.

  All is in double precision: if the noise were in single precision, its own
  last digits would be coarser than the grid where it is large, and the sum's
  would show. Numbers stay in the processor's cache until they are done.

  Args:
    total: Nested tensors, as `exact_sums.to_numbers` takes them.
    seeds: Key and offset of the generator for the first tensor, int64 `[2]`;
      both count up by one from tensor to tensor.
    stddev: Standard deviation of a draw.
    clip_norm: Scalar, not 0.
    remembered: Earlier noise in the structure of the sum, float32 `[rows,
      ...]`; only with `correlate`.
    correlate: Maps fresh numbers `[n]` and the rows `[rows, n]` of the same
      places, float64, to the noise, float64 `[n]`, and what to remember,
      float64 `[*kept_rows, n]` [independent noise].
    kept_rows: No number, or that of the rows to remember.

  Returns:
    The noised sum, and what `correlate` wants to remember, both float32 in the
    structure of the sum; None in place of the latter without `correlate`.
  """
  grid = _grid_of(clip_norm, total)
  # The grid is a power of two: a product with this is exact, and faster than a
  # quotient.
  steps_of_one = 1.0 / grid
  stddev = tf.cast(stddev, tf.float64) * (1.0 + ROUNDING)

  def add(seeds: tf.Tensor, tensor: tf.Tensor, rows: tf.Tensor | None):
    """The noised tensor, and what to remember of its noise.

    Args:
      seeds: Key and offset of this tensor, int64 `[2]`.
      tensor: A tensor of the sum.
      rows: Earlier noise of this tensor, `[rows, ...]`; None without
        `correlate`.
    """
    flat = tf.reshape(tensor, [-1])
    size_in_steps = exact_sums.size_of_one(flat, clip_norm) * steps_of_one
    if rows is not None:
      rows = tf.reshape(rows, [tf.shape(rows)[0], flat.shape[0]])

    def add_chunk(chunk: tf.Tensor, start: tf.Tensor, size: tf.Tensor):
      part = tf.cast(tf.slice(flat, [start], [size]), tf.float64)
      if correlate is None:
        noise_in_steps = normal_numbers.draw_normal(
          seeds, chunk, size, stddev * steps_of_one
        )
        kept = []
      else:
        fresh = normal_numbers.draw_normal(seeds, chunk, size, stddev)
        rows_of_chunk = tf.slice(rows, [0, start], [-1, size])
        noise, new = correlate(fresh, tf.cast(rows_of_chunk, tf.float64))
        noise_in_steps = noise * steps_of_one
        kept = [new]
      steps = tf.round(part * size_in_steps) + tf.round(noise_in_steps)
      return tuple(tf.cast(x, tf.float32) for x in [steps * grid, *kept])

    outputs = ((),) if correlate is None else ((), kept_rows)
    return _by_chunks(add_chunk, tensor.shape, outputs)

  tensors = tf.nest.flatten(total)
  all_rows = [None] * len(tensors)
  if correlate is not None:
    all_rows = tf.nest.flatten(remembered)
  all_seeds = [seeds + index for index in range(len(tensors))]
  outputs = list(map(add, all_seeds, tensors, all_rows))
  noised = tf.nest.pack_sequence_as(total, [output[0] for output in outputs])
  if correlate is None:
    return noised, None
  kept = tf.nest.pack_sequence_as(total, [output[1] for output in outputs])
  return noised, kept


class ExactSumQuery(tfp.GaussianSumQuery):
  """tensorflow-privacy's query, which clips by `exact_sums`.

  Sums are in steps, so that they do not depend on the order of the clients.
  """

  def initial_sample_state(self, template: Any = None):
    """Returns the sum of no record, in steps.

    Args:
      template: Specs or numbers of the structure and shapes of a record.
    """
    return exact_sums.zeros(template)

  def preprocess_record_impl(self, params: Any, record: Any):
    """Clips a record and rounds it to steps (`exact_sums.clip`).

    Args:
      params: The clip norm, scalar.
      record: Nested tensors of floating-point numbers.

    Returns:
      The steps, and a bound on the norm that the record had.
    """
    return exact_sums.clip(record, params)


class SecretGaussianSumQuery(ExactSumQuery):
  """tensorflow-privacy's query, with the noise that this module describes.

  Privacy:
    Unit: one record.
    Neighbouring relation: zero-out of one record.
    Sensitivity: the clip norm, and 2^-10 of it for rounding; the standard
      deviation is larger than requested by the same share.
    DpEvent: `GaussianDpEvent`, as in the parent.

  The key is drawn when the query is made. It is in no state and no checkpoint,
  so a program that continues after a kill draws other noise. Each round mixes a
  word of its own into the generator's offset.
  """

  def __init__(self, l2_norm_clip: float, stddev: float):
    """Creates the query.

    Args:
      l2_norm_clip: L2 norm to which a record is clipped.
      stddev: Standard deviation of the noise; 0 for none, whatever the state.
    """
    super().__init__(l2_norm_clip, stddev)
    self._key = draw_key()

  def get_noised_result(self, sample_state: Any, global_state: Any):
    """Adds the noise of the round to the sum of its records.

    Args:
      sample_state: The sum of the clipped records, in steps (`exact_sums`).
      global_state: The parent's state: clip norm and standard deviation.

    Returns:
      The noised sum, float32 and nested as a record; the state, unchanged; and
      the parent's event of the round.
    """
    # Only the parent's state and event are used: without numbers it adds no
    # noise.
    _, state, event = super().get_noised_result((), global_state)
    if not self._stddev:
      total = exact_sums.to_numbers(sample_state, global_state.l2_norm_clip)
      return total, state, event
    key, offset = self._key
    noised, _ = add_noise(
      sample_state,
      tf.stack([key, tf.bitwise.bitwise_xor(draw_words([]), offset)]),
      global_state.stddev,
      global_state.l2_norm_clip,
    )
    return noised, state, event


class SecretState(NamedTuple):
  """State of a generator whose key is secret; tests have another class.

  Attributes:
    seeds: Key and offset, int64 `[2]`.
    stddev: Standard deviation of each number.
  """

  seeds: Any
  stddev: Any


class _SeededState(NamedTuple):
  """As `SecretState`, for a seed that a test gives and that all runs share."""

  seeds: Any
  stddev: Any


def go_on_otherwise(state: Any, key: Sequence[int]) -> Any:
  """Returns a state whose future correlated noise is that of another run.

  Privacy:
    The remembered part of earlier noise stays. Everything drawn from here on is
    different, by 128 secret bits from the operating system. So two copies of a
    state draw no noise in common from here on. If they did, the difference of
    their releases would have no noise.

  Args:
    state: State of a process, nested, with any number of `SecretState`.
    key: Two int64 numbers, as `draw_key` returns them.

  Returns:
    The state with other seeds; all else is the same.
  """

  def replace(part: Any):
    if not isinstance(part, SecretState):
      return None
    seeds = np.bitwise_xor(np.asarray(part.seeds), np.array(key, np.int64))
    return part._replace(seeds=seeds)

  return tree.traverse(replace, state)


class SecretNoiseGenerator:
  """The secret seeds of noise, which travel in the aggregator's state.

  Correlated noise is made over many rounds. Later rounds must cancel exactly
  what earlier rounds added, also if the program was killed in between. The
  noise is therefore a function of seeds that are in the checkpoint. Every
  tensor of every round counts them up by one.

  Privacy:
    Key and offset are drawn from the operating system when the generator is
    made. Each `initialize` mixes in other words, so that two runs of one
    process do not share their noise: the difference of two releases with the
    same noise would have none. `go_on_otherwise` is for two programs that
    continue from copies of one state.

    Anyone who reads the state can remove the noise: keep checkpoints secret.
  """

  def __init__(self, noise_std: float, *, seed: int | None = None):
    """Creates the generator.

    Args:
      noise_std: Standard deviation of each number.
      seed: For tests: makes all runs share their noise, which voids privacy.
    """
    self._noise_std = noise_std
    self._is_secret = seed is None
    self._key = draw_key() if seed is None else [seed, 0]

  def initialize(self):
    """Returns the state of a new run: seeds `[2]` and standard deviation.

    Without a seed for tests, every call returns another state.
    """
    seeds = tf.constant(self._key, tf.int64)
    if self._is_secret:
      seeds = tf.bitwise.bitwise_xor(seeds, draw_words([2]))
    return self.make_state(seeds, self._noise_std)

  def make_state(self, seeds: tf.Tensor, stddev: Any) -> Any:
    """Returns a state.

    Args:
      seeds: Key and offset, int64 `[2]`.
      stddev: Standard deviation of each number, scalar.
    """
    state_class = SecretState if self._is_secret else _SeededState
    return state_class(seeds, tf.cast(stddev, tf.float32))

  def add_noise(
    self,
    total: Any,
    state: Any,
    clip_norm: Any,
    *,
    remembered: Any,
    correlate: _Correlate,
    kept_rows: Sequence[int] = (),
  ) -> tuple[Any, Any, Any]:
    """Adds the noise of a round, as the function of this name.

    Args:
      total: As there.
      state: The state before the round.
      clip_norm: As there.
      remembered: As there.
      correlate: As there.
      kept_rows: As there.

    Returns:
      The noised sum, what to remember, and the state after the round: key and
      offset have counted up by the number of tensors.
    """
    noised, kept = add_noise(
      total,
      state.seeds,
      state.stddev,
      clip_norm,
      remembered=remembered,
      correlate=correlate,
      kept_rows=kept_rows,
    )
    seeds = state.seeds + len(tf.nest.flatten(total))
    return noised, kept, self.make_state(seeds, state.stddev)
