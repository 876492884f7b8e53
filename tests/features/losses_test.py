"""Tests of losses and their clipped gradients."""

import numpy as np
import pytest

from tff_fedemb.features import losses

_NUM, _DIM, _NUM_CLASSES = 7, 5, 4


def _problem(seed=0):
  rng = np.random.default_rng(seed)
  return (
    rng.standard_normal([_NUM_CLASSES, _DIM]),
    rng.standard_normal([_NUM, _DIM]),
    rng.integers(_NUM_CLASSES, size=_NUM),
  )


# Only the sigmoid loss has these options.
_BIASED = {"logit_bias": -1.2, "negative_weight": 0.3}


def _loss(weights, example, label, loss, logit_bias=0.0, negative_weight=1.0):
  """The loss of one example, as in the textbooks."""
  logits = weights @ example + logit_bias
  if loss == "softmax":
    return np.log(np.exp(logits).sum()) - logits[label]
  is_own = np.arange(len(logits)) == label
  each = np.log1p(np.exp(np.where(is_own, -1.0, 1.0) * logits))
  return (np.where(is_own, 1.0, negative_weight) * each).sum()


def _gradient(weights, example, label, loss, step=1e-6, **options):
  """The gradient for one example, by central differences."""
  gradient = np.zeros_like(weights)
  for index in np.ndindex(weights.shape):
    move = np.zeros_like(weights)
    move[index] = step
    gradient[index] = (
      _loss(weights + move, example, label, loss, **options)
      - _loss(weights - move, example, label, loss, **options)
    ) / (2 * step)
  return gradient


@pytest.mark.parametrize("clip_norm", [0.1, 1.5])
@pytest.mark.parametrize(
  ("loss", "options"), [("softmax", {}), ("sigmoid", {}), ("sigmoid", _BIASED)]
)
def test_each_gradient_is_clipped_as_a_whole(loss, options, clip_norm):
  weights, features, labels = _problem(1)
  # One that needs no clipping, whatever the bound.
  features[0] /= 100
  expected = np.zeros_like(weights)
  num_clipped = 0
  for x, y in zip(features, labels, strict=True):
    gradient = _gradient(weights, x, y, loss, **options)
    norm = np.linalg.norm(gradient)
    num_clipped += norm > clip_norm
    expected += gradient * min(1, clip_norm / norm)
  assert 0 < num_clipped < _NUM
  gradient = losses.clipped_gradient(
    weights, features, labels, loss=loss, clip_norm=clip_norm, **options
  )
  np.testing.assert_allclose(gradient, expected, atol=1e-8)


@pytest.mark.parametrize("clip_norm", [1e-10, 1e10])
@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e10])
def test_float32_is_clipped_at_extreme_norms(scale, clip_norm):
  # Squares of such numbers are none of float32's.
  weights, features, labels = _problem(2)
  for x, y in zip(features, labels, strict=True):
    gradient, exact = (
      losses.clipped_gradient(
        0 * weights,
        scale * x[None].astype(dtype),
        y[None],
        loss="softmax",
        clip_norm=clip_norm,
      )
      for dtype in (np.float32, np.float64)
    )
    norm = np.linalg.norm(gradient.astype(np.float64))
    assert norm <= clip_norm * (1 + 1e-6)
    np.testing.assert_allclose(gradient, exact, rtol=1e-5)


@pytest.mark.parametrize("loss", losses.LOSSES)
def test_examples_whose_logits_overflow_add_nothing(loss):
  weights = np.array([[1e30, -1e30], [-1e30, 1e30]])
  features = np.array([[1e10, 1e10], [1e-30, 0.0], [1e-40, 0.0]], np.float32)
  labels = np.array([0, 1, 1])
  gradient, others = (
    losses.clipped_gradient(
      weights, features[rows], labels[rows], loss=loss, clip_norm=1.0
    )
    for rows in (slice(None), slice(1, None))
  )
  assert np.isfinite(gradient).all()
  assert others.any()
  np.testing.assert_array_equal(gradient, others)
