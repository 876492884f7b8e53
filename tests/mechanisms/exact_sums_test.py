"""Tests of clipping to steps and of their sums."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tests.mechanisms import released
from tff_fedemb.mechanisms import exact_sums


def _neighbours(edge):
  """Updates of one number, with and without one that makes the sum cross edge.

  An edge, in clip norms, is a power of two, from where on sums of single
  precision lie twice as far apart. With the update, each of the small ones
  after it is rounded up to nearly twice as much. At last the sum is near 0,
  where it is released as it is.
  """
  small = edge * 2.0**-24 * (1.0 + 2.0**-11)
  before = [1.0] * (edge - 1)
  after = [small] * (edge - 6) + [-1.0] * edge
  return [[*before, 1.0, *after], [*before, 0.0, *after]]


@pytest.mark.parametrize(
  ("runtime_name", "edge"),
  [
    ("in_process", 256),
    # 24,570 clients. The other runtimes add up the same steps, and 3,066 show
    # it: with rounding, neighbours would differ by 0.06 clip norms more.
    pytest.param("in_process", 8192, marks=pytest.mark.slow),
    pytest.param("ray", 1024, marks=pytest.mark.slow),
    pytest.param("tff", 1024, marks=pytest.mark.slow),
  ],
)
def test_neighbours_among_thousands_differ_by_at_most_the_clip_norm(
  create_aggregation, runtime_name, edge
):
  if runtime_name == "ray":
    pytest.importorskip("ray")
  aggregation = create_aggregation(
    "gaussian",
    shapes=((1,),),
    runtime_name=runtime_name,
    clip_norm=released.CLIP_NORM,
    clients_per_round=1.0,
  )
  whole, less = _neighbours(edge)
  shuffled = np.random.default_rng(0).permutation(whole)
  with_it, without, in_other_order = (
    aggregation.run(
      [[np.array([n * released.CLIP_NORM]) for n in numbers]]
    ).means[0, 0]
    / released.CLIP_NORM
    for numbers in (whole, less, shuffled)
  )
  assert with_it - without == pytest.approx(1.0, abs=1e-6)
  assert in_other_order == with_it
  assert with_it == pytest.approx(math.fsum(whole), abs=1e-5)


def _clip(record, clip_norm):
  """Steps as Python's integers, the norm it had, and steps of a clip norm."""
  tensors, norm = exact_sums.clip(
    [tf.constant(part, tf.float32) for part in record], clip_norm
  )
  steps = [
    int(step) for part in tensors for step in part.numpy().ravel() if step
  ]
  of_one = np.float32(clip_norm) / exact_sums.step_of(clip_norm).numpy()
  return steps, float(norm), of_one


@pytest.mark.parametrize("clip_norm", [1.0, 0.3, 1e-25, 3e25])
@pytest.mark.parametrize("size", [1, 9, 70_001])
def test_norm_after_clipping_is_at_most_the_clip_norm(size, clip_norm):
  """In exact arithmetic, also where rounding is all there is to clip."""
  generator = np.random.default_rng(size)
  for scale in (0.5, 1.0 - 1e-9, 1.0, 1.0 + 1e-7, 7.0):
    update = generator.normal(size=size)
    update = np.float32(update * (scale * clip_norm / np.linalg.norm(update)))
    steps, norm, of_one = _clip([update[:1], update[1:]], clip_norm)
    squares = sum(step**2 for step in steps)
    assert squares <= of_one**2
    if size > 2**16 and not 1e-15 < clip_norm < 1e15:
      # Squares in single precision: it may be clipped to less, or to nothing.
      continue
    exact = np.linalg.norm(update.astype(np.float64))
    assert norm == pytest.approx(exact, rel=2.0**-18)
    # Rounding makes room for half a step of each number.
    assert math.sqrt(squares) / of_one == pytest.approx(
      min(exact / clip_norm, 1.0), rel=3e-6, abs=math.sqrt(size) * 2.0**-30
    )


def test_update_within_the_clip_norm_is_not_scaled():
  update = np.float32([0.6, -0.3, 2.0**-30, 2.0**-32])
  steps, _, of_one = _clip([update], 1.0)
  assert of_one == 2.0**30
  np.testing.assert_array_equal(steps, np.round(update[:3] * of_one))
  # As a count has it: exactly the clip norm.
  assert _clip([[0.5]], 0.5)[0] == [2**30]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("size", [3, 70_000])
def test_update_without_a_norm_becomes_zeros(number, size):
  update = np.ones(size, np.float32)
  update[1] = number
  steps, norm, _ = _clip([update], 1.0)
  assert not steps
  assert not math.isfinite(norm)


def test_largest_numbers_are_clipped():
  steps, _, of_one = _clip([np.float32([3e38, -3e38])], 1.0)
  np.testing.assert_allclose(
    np.array(steps) / of_one, [0.5**0.5, -(0.5**0.5)], rtol=1e-6
  )


def test_tiny_clip_norm_leaves_nothing():
  assert not _clip([np.float32([1.0, 1e-38])], 1e-37)[0]
