"""Tests of noised gradients."""

import math

import numpy as np
import pytest

from tff_fedemb.features import budget as budget_lib
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import noise
from tff_fedemb.features import sgd

_SEED = np.random.SeedSequence(0)


@pytest.mark.parametrize(("steps", "momentum"), [(4, 0.5), (30, 0.9)])
def test_logit_noise_of_steps_of_noise(steps, momentum):
  # Features are zero, so steps are noise alone. Each of 40,000 weights is a
  # logit of a feature of norm C in one coordinate.
  num_classes, dim, clip_norm = 100, 400, 3.0
  examples = examples_lib.ClippedExamples(
    np.zeros([50, dim]),
    np.arange(50) % num_classes,
    num_classes=num_classes,
    clip_norm=clip_norm,
  )
  method = sgd.Sgd(
    steps=steps, gradient_clip_norm=0.5, learning_rate=1.0, momentum=momentum
  )
  budget = budget_lib.Budget(
    (method.plan_gradients(share=1.0),), {"gradient": 2.0}, 1.0, 1e-5
  )
  method = method.resolve(examples.size, budget.noise_multipliers)
  weights = method.fit(examples, noise.Releases(budget, _SEED))
  said = method.noise_on_logit(examples.size, 2.0)
  share = clip_norm * weights.std() / said
  # A step's noise is in its own velocity and, decayed, in all that follow: with
  # k steps left it counts 1 + m + ... + m^(k-1) times, and steps add up as
  # independent numbers do. The bound takes 1 / (1 - m) for all of them.
  counts = np.cumsum(momentum ** np.arange(steps))
  exact = math.hypot(*counts) * (1 - momentum) / steps**0.5
  # The standard error is 0.35 %: bounds at five.
  assert abs(share / exact - 1) < 0.018
  assert share < 1.018
  # About: with more steps than momentum remembers.
  if steps * (1 - momentum) >= 3:
    assert share > 0.7


@pytest.mark.parametrize(
  ("num_classes", "options", "expected"),
  [
    (2, {"loss": "sigmoid"}, 0.0),
    (11, {"loss": "sigmoid"}, -math.log(10)),
    (11, {"loss": "softmax"}, 0.0),
    (11, {"loss": "sigmoid", "logit_bias": -10.0}, -10.0),
  ],
)
def test_classes_begin_at_one_over_their_number(num_classes, options, expected):
  size = examples_lib.ProblemSize(100, 5, num_classes, 1.0)
  resolved = sgd.Sgd(**options).resolve(size, {"gradient": 1.0})
  assert resolved.logit_bias == pytest.approx(expected)


def test_bias_lets_many_classes_be_learned():
  # Gradients that say what 99 classes an example is not of are mostly clipped.
  num_classes, dim = 100, 64
  rng = np.random.default_rng(0)
  labels = np.arange(1_000) % num_classes
  features = rng.standard_normal([num_classes, dim])[labels]
  features += 0.5 * rng.standard_normal(features.shape)
  examples = examples_lib.ClippedExamples(
    features, labels, num_classes=num_classes, clip_norm=1.0
  )
  budget = budget_lib.calibrate(
    [budget_lib.PlannedRelease("gradient", count=30)], epsilon=4.0, delta=1e-5
  )
  accuracies = []
  for logit_bias in (0.0, None):
    method = sgd.Sgd(loss="sigmoid", logit_bias=logit_bias)
    method = method.resolve(examples.size, budget.noise_multipliers)
    weights = method.fit(examples, noise.Releases(budget, _SEED))
    accuracies.append(np.mean((features @ weights.T).argmax(axis=1) == labels))
  without, with_bias = accuracies
  assert without < 0.3
  assert with_bias > 0.6
