"""The bare loops fit what the private methods fit without noise."""

import numpy as np
import pytest

from benchmarks import bare_features
from benchmarks import feature_cases
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


def _fit(path, name, **hyperparameters):
  data = feature_files.read_features(path)
  return (
    classifier.FeatureClassifier(
      registry.create_method(name, **hyperparameters),
      num_classes=_EXAMPLES.num_classes,
      epsilon=np.inf,
      clip_norm=_LARGE,
    )
    .fit(data.features, data.labels)
    .coef_
  )


def _fit_bare(path, fit, **options):
  data = feature_files.read_features(path)
  return fit(
    data.features,
    data.labels,
    num_classes=_EXAMPLES.num_classes,
    **options,
  )


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
  monkeypatch.setattr(bare_features, "_CHUNK", 128)


def test_least_squares(path):
  found = _fit_bare(path, bare_features.fit_least_squares, regularization=3.0)
  expected = _fit(path, "least_squares", regularization=3.0)
  np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
  ("name", "options"),
  [
    ("sgd", {"learning_rate": 2.0}),
    ("feature_covariance", {"learning_rate": 0.5, "regularization": 20.0}),
  ],
)
def test_gradients(path, name, options):
  found = _fit_bare(path, bare_features.fit_gradients, steps=5, **options)
  expected = _fit(path, name, steps=5, **options)
  assert np.abs(expected).max() > 0.1
  np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
