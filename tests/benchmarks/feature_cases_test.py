"""Tests of the files that the benchmark of features writes, and of its fits."""

import numpy as np
import pytest

from benchmarks import feature_cases
from benchmarks import results
from tff_fedemb.features import classifier
from tff_fedemb.features import feature_files
from tff_fedemb.features import registry


def test_names_are_cases():
  method, examples = feature_cases.parse("feature_covariance_50x6x3")
  assert method == "feature_covariance"
  assert examples == feature_cases.Examples(50, 6, 3)


def test_file_is_mapped_and_has_what_was_asked_for(tmp_path):
  examples = feature_cases.Examples(2000, 16, 10)
  path = tmp_path / "features.npz"
  feature_cases.write(path, examples)
  data = feature_files.read_features(path)
  assert isinstance(data.features, np.memmap)
  assert data.features.shape == (2000, 16)
  assert data.features.dtype == np.float32
  assert set(data.labels.tolist()) == set(range(10))
  assert len(np.unique(data.features)) > 31_000
  with np.load(path) as arrays:
    np.testing.assert_array_equal(arrays["repr"], data.features)
  # About half are clipped, and the classes can be told apart.
  norms = np.linalg.norm(data.features, axis=1)
  assert 0.2 < np.mean(norms > 1.0) < 0.8
  means = [data.features[data.labels == k].mean(axis=0) for k in range(10)]
  nearest = np.argmin(
    [((data.features - mean) ** 2).sum(axis=1) for mean in means], axis=0
  )
  assert np.mean(nearest == data.labels) > 0.3


def test_all_but_the_largest_are_compared_with_the_loop_without_a_bound():
  names = ["least_squares_1000000x768x1000", "sgd_5x5x5"]
  goals = results.read_goals(names).set_index(["name", "case"]).bound
  assert [goals["wall_to_bare", name] for name in names] == [
    "at most 1.15",
    "",
  ]
  for goal in results.read_goals().itertuples():
    if goal.runtime == "private":
      feature_cases.parse(goal.case)


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
  monkeypatch.setattr(feature_cases, "_CHUNK", 128)


@pytest.mark.parametrize(
  ("name", "bare_fit", "options"),
  [
    (
      "least_squares",
      feature_cases.fit_least_squares,
      {"regularization": 3.0},
    ),
    ("sgd", feature_cases.fit_gradients, {"steps": 5, "learning_rate": 2.0}),
    (
      "feature_covariance",
      feature_cases.fit_gradients,
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
    registry.METHODS.create(name, **options),
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
    private = feature_cases.fit(case, path, round_num)
    assert private.coef_.shape == (5, 8)
    assert (
      0.9 < private.report_.epsilon_with_secret_noise <= feature_cases.EPSILON
    )
    reports.append(private.report_)
  # Calibrated each time.
  assert reports[0].delta != reports[1].delta
  bare = feature_cases.fit_bare(case, path)
  assert bare.shape == (5, 8)
  assert np.isfinite(bare).all()
