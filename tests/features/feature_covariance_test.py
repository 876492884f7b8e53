"""Tests of gradients preconditioned by the features' covariance."""

import numpy as np
import pytest

from tests.features import fits
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import feature_covariance
from tff_fedemb.features import losses

# The third is clipped to (0.6, 0.8), so that F = [[1.36, 0.48], [0.48, 1.64]].
_FEATURES = np.array([[1.0, 0.0], [0.0, 1.0], [6.0, 8.0]])
_LABELS = np.array([0, 1, 1])
_COVARIANCE = np.array([[1.36, 0.48], [0.48, 1.64]])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("loss", losses.LOSSES)
def test_steps_with_momentum(monkeypatch, loss, dtype):
  # Chunks of 2 of 3 examples.
  monkeypatch.setattr(examples_lib, "_NUMBERS_OF_CHUNK", 2 * (2 + 2))
  expected, velocity = np.zeros([2, 2]), np.zeros([2, 2])
  clipped = examples_lib.clip_rows(_FEATURES, 1.0)
  for _ in range(4):
    gradient = losses.clipped_gradient(
      expected, clipped, _LABELS, loss=loss, clip_norm=0.3, logit_bias=-0.7
    )
    step = gradient @ np.linalg.inv(_COVARIANCE + 0.2 * np.eye(2))
    velocity = 0.7 * velocity + step
    expected = expected - 0.5 * velocity
  method = feature_covariance.FeatureCovariance(
    steps=4,
    learning_rate=0.5,
    regularization=0.2,
    momentum=0.7,
    loss=loss,
    gradient_clip_norm=0.3,
    logit_bias=-0.7,
  )
  weights = fits.fit(method, _FEATURES.astype(dtype), _LABELS, num_classes=2)
  tolerance = 1e-12 if dtype == np.float64 else 1e-6
  np.testing.assert_allclose(weights, expected, rtol=tolerance)


@pytest.mark.parametrize(
  ("covariance", "gradient", "expected"),
  [
    # 0.5 n C^2 / d.
    (0.01, 0.001, 1.0),
    # The edge of the noise's spectrum, sqrt(2 d) C^2 z.
    (6.0, 2.0, 480.0),
    # The steps' noise is sqrt(25) z C / n / (1 - 0.6) = 0.25 z on weights, and
    # 0.5 z on logits; with learning rate 3 n / lambda 0.8 at lambda = 187.5 z.
    (3.0, 4.0, 750.0),
  ],
)
def test_regularization_grows_with_the_noise(covariance, gradient, expected):
  size = examples_lib.ProblemSize(100, 200, 4, 2.0)
  method = feature_covariance.FeatureCovariance(
    steps=25,
    learning_rate=3.0,
    relative_regularization=0.5,
    logit_noise=0.8,
    momentum=0.6,
  )
  noise_multipliers = {"covariance": covariance, "gradient": gradient}
  resolved = method.resolve(size, noise_multipliers)
  assert resolved.regularization == pytest.approx(expected)
