"""The bare loops fit what the private methods fit without noise."""

import numpy as np
import pytest

from benchmarks import feature_cases
from benchmarks import feature_fits
from tff_fedemb.features import classifier
from tff_fedemb.features import feature_files
from tff_fedemb.features import registry

_EXAMPLES = feature_cases.Examples(500, 6, 4)
# With neither noise nor clipping.
_LARGE = 1e3


@pytest.fixture(name="path", scope="module")
def _path(tmp_path_factory):
  path = tmp_path_factory.mktemp("features") / "features.npz"
  feature_cases.write(path, _EXAMPLES)
  return path


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
  monkeypatch.setattr(feature_fits, "_CHUNK", 128)


@pytest.mark.parametrize(
  ("name", "bare_fit", "options"),
  [
    (
      "least_squares",
      feature_fits.fit_least_squares,
      {"regularization": 3.0},
    ),
    ("sgd", feature_fits.fit_gradients, {"steps": 5, "learning_rate": 2.0}),
    (
      "feature_covariance",
      feature_fits.fit_gradients,
      {"steps": 5, "learning_rate": 0.5, "regularization": 20.0},
    ),
  ],
)
def test_same_weights(path, name, bare_fit, options):
  data = feature_files.read_features(path)
  found = bare_fit(
    data.features,
    data.labels,
    num_classes=_EXAMPLES.num_classes,
    **options,
  )
  private = classifier.FeatureClassifier(
    registry.create_method(name, **options),
    num_classes=_EXAMPLES.num_classes,
    epsilon=np.inf,
    clip_norm=_LARGE,
  )
  expected = private.fit(data.features, data.labels).coef_
  assert np.abs(expected).max() > 0.1
  np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", feature_cases.METHODS)
def test_fits_case(tmp_path, name):
  case = f"{name}_300x8x5"
  path = str(tmp_path / "features.npz")
  feature_cases.write(path, feature_cases.Examples(300, 8, 5))
  reports = []
  for round_num in range(2):
    private = feature_fits.fit(case, path, round_num)
    assert private.coef_.shape == (5, 8)
    assert 0.9 < private.report_.epsilon <= feature_fits.EPSILON
    reports.append(private.report_)
  # Calibrated each time.
  assert reports[0].delta != reports[1].delta
  bare = feature_fits.fit_bare(case, path)
  assert bare.shape == (5, 8)
  assert np.isfinite(bare).all()
