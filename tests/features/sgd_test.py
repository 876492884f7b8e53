"""Tests of first-order training."""

import numpy as np
import pytest
from sklearn import linear_model

from tests.features import fits
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import losses
from tff_fedemb.features import sgd


@pytest.mark.parametrize("loss", losses.LOSSES)
def test_many_steps_end_where_scikit_learn_does(loss):
  features, labels = fits.problem(60, 3)
  features = examples_lib.clip_rows(features, 1.0)
  method = sgd.Sgd(
    steps=3_000,
    learning_rate=1.0,
    momentum=0.9,
    loss=loss,
    gradient_clip_norm=100.0,
    logit_bias=0.0,
  )
  weights = fits.fit(method, features, labels)

  def reference(targets):
    regression = linear_model.LogisticRegression(
      penalty=None, fit_intercept=False, tol=1e-10, max_iter=10_000
    )
    return regression.fit(features, targets).coef_

  if loss == "softmax":
    expected = reference(labels)
    # The mean over classes has no effect, and begins at zero.
    expected = expected - expected.mean(axis=0)
  else:
    expected = np.concatenate([reference(labels == i) for i in range(3)])
  np.testing.assert_allclose(weights, expected, atol=1e-4)


@pytest.mark.parametrize(
  ("noise_multiplier", "options", "expected"),
  [
    # 4 / C^2 where there is little of it: up to z = 3.
    (2.9, {}, 1.0),
    (60.0, {}, 0.05),
    (60.0, {"logit_noise": 3.0}, 0.1),
    (60.0, {"steps": 100}, 0.025),
    (60.0, {"momentum": 0.0}, 0.125),
    (60.0, {"gradient_clip_norm": 0.5}, 0.2),
  ],
)
def test_default_learning_rate_follows_noise(
  noise_multiplier, options, expected
):
  # C = 2. Weights have the noise sqrt(25) z C / 100 / (1 - 0.6) = 0.25 z at
  # learning rate 1, and logits 0.5 z.
  size = examples_lib.ProblemSize(100, 5, 3, 2.0)
  options = {"steps": 25, "momentum": 0.6, "logit_noise": 1.5} | options
  resolved = sgd.Sgd(**options).resolve(size, {"gradient": noise_multiplier})
  assert resolved.learning_rate == pytest.approx(expected)


def test_a_step_by_hand():
  # The third is clipped to (0.6, 0.8). At zero weights both probabilities are
  # 1/2; no gradient's norm, sqrt(1/2) at most, is above 1.
  features = np.array([[1.0, 0.0], [0.0, 1.0], [6.0, 8.0]])
  labels = np.array([0, 1, 1])
  method = sgd.Sgd(
    steps=1, learning_rate=0.3, momentum=0.9, gradient_clip_norm=1.0
  )
  # Class 0 has -1/2 (1, 0) + 1/2 (0, 1) + 1/2 (0.6, 0.8) = (-0.2, 0.9).
  np.testing.assert_allclose(
    fits.fit(method, features, labels, num_classes=2),
    [[0.02, -0.09], [-0.02, 0.09]],
    atol=1e-15,
  )
