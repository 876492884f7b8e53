"""Tests of noised gradients and optimizers."""

import math

import numpy as np
import pytest

from tff_fedemb.features import budget as budget_lib
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import gradient_steps
from tff_fedemb.features import noise
from tff_fedemb.features import sgd


def _examples(features, labels, num_classes):
  return examples_lib.ClippedExamples(
    features, labels, num_classes=num_classes, clip_norm=1.0
  )


def _releases(planned, noise_multiplier):
  budget = budget_lib.Budget(
    (planned,), {planned.name: noise_multiplier}, 1.0, 1e-5
  )
  return noise.Releases(budget, 0)


def _gradient(clip_norm=1.0, **options):
  return sgd.Sgd(**{"steps": 1, "gradient_clip_norm": clip_norm, **options})


def test_poisson_sampling():
  # Each example has a coordinate of its own, which says whether it was drawn.
  num, steps, batch_size = 100, 400, 25
  examples = _examples(np.eye(num), np.zeros(num, int), 2)
  release = _gradient(steps=steps, batch_size=batch_size)
  releases = _releases(release.plan_gradients(examples.size, 1.0), 0.0)
  rng = np.random.default_rng(3)
  means = np.array(
    [
      release.mean_gradient(np.zeros([2, num]), examples, releases, rng)[0]
      for _ in range(steps)
    ]
  )
  drawn = means != 0
  # Of the sum of residuals -1/2, over the expected number of examples.
  np.testing.assert_allclose(means[drawn], -0.5 / batch_size)
  # Standard errors: 0.22 % for the share of all, 2.2 % for an example's, 0.3
  # for the variance of the numbers drawn, 18.75 x sqrt(2 / 400) = 1.3.
  assert abs(drawn.mean() - 0.25) < 0.011
  assert np.abs(drawn.mean(axis=0) - 0.25).max() < 6 * 0.022
  assert abs(drawn.sum(axis=1).var() - 18.75) < 6.7
  # Anew each time, for each example by itself.
  correlations = np.corrcoef(drawn.T) - np.eye(num)
  assert np.abs(correlations).max() < 6.5 / steps**0.5
  assert len(np.unique(drawn, axis=0)) == steps


@pytest.mark.parametrize("steps", [1, 4, 30, 200])
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_logit_noise_of_steps_of_noise(steps, momentum):
  # Of zeros: no step is of anything but noise. 40,000 weights, each a logit of
  # a feature of norm C in one coordinate.
  num_classes, dim, clip_norm = 100, 400, 3.0
  examples = examples_lib.ClippedExamples(
    np.zeros([50, dim]),
    np.arange(50) % num_classes,
    num_classes=num_classes,
    clip_norm=clip_norm,
  )
  method = _gradient(
    steps=steps,
    batch_size=10,
    clip_norm=0.5,
    learning_rate=1.0,
    momentum=momentum,
  )
  releases = _releases(method.plan_gradients(examples.size, 1.0), 2.0)
  weights = method.fit(examples, releases, np.random.default_rng(0))
  said = method.noise_on_logit(examples.size, 2.0)
  share = clip_norm * weights.std() / said
  # A step's noise is in its own velocity and, decayed, in all that follow: with
  # k steps left it counts 1 + m + ... + m^(k-1) times, and steps add up as
  # independent numbers do. What is said has 1 / (1 - m) for all of them.
  counts = [
    sum(momentum**power for power in range(left))
    for left in range(1, steps + 1)
  ]
  exact = math.hypot(*counts) * (1 - momentum) / steps**0.5
  # The standard error is 0.35 %: bounds at five.
  assert abs(share / exact - 1) < 0.018
  assert share < 1.018
  # About: with more steps than momentum remembers.
  if steps * (1 - momentum) >= 3:
    assert share > 0.7


def test_adam_by_hand():
  # Means of 2 and -1 with weights 0.8 and 1; squares with 0.999 and 1.
  optimizer = gradient_steps.Optimizer("adam", learning_rate=0.1, momentum=0.8)
  weights = optimizer.step(np.array([[0.0]]), np.array([[2.0]]))
  np.testing.assert_allclose(weights, [[-0.1]], rtol=1e-7)
  weights = optimizer.step(weights, np.array([[-1.0]]))
  mean = (0.8 * 2 - 1) / 1.8
  square = (0.999 * 4 + 1) / 1.999
  np.testing.assert_allclose(
    weights, [[-0.1 - 0.1 * mean / square**0.5]], rtol=1e-7
  )
