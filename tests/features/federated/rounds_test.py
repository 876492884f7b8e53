"""Tests of fits that protect users."""

import dataclasses
import math

import dp_accounting
import numpy as np
import pytest

from tests.mechanisms import noise_theory
from tff_fedemb import errors
from tff_fedemb import runtime as runtime_lib
from tff_fedemb.features import budget as budget_lib
from tff_fedemb.features import classifier
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import feature_covariance
from tff_fedemb.features import least_squares
from tff_fedemb.features import newton
from tff_fedemb.features import noise
from tff_fedemb.features import settings as feature_settings
from tff_fedemb.features import sgd
from tff_fedemb.features.federated import rounds as rounds_lib
from tff_fedemb.features.federated import statistics as federated_statistics
from tff_fedemb.mechanisms import clip_only

_NUM_CLASSES, _DIM, _NUM_EXAMPLES = 3, 4, 12
_TARGET = {"epsilon": 2.0, "delta": 1e-3}
_OPTIONS = {"num_classes": _NUM_CLASSES, "clip_norm": 1.5}


def _draw_examples() -> tuple[np.ndarray, np.ndarray]:
  """Some features longer than the clip norm, others shorter."""
  generator = np.random.default_rng(1)
  labels = np.arange(_NUM_EXAMPLES) % _NUM_CLASSES
  features = generator.normal(scale=0.7, size=[_NUM_EXAMPLES, _DIM])
  features[:, :_NUM_CLASSES] += np.eye(_NUM_CLASSES)[labels]
  return features, labels


_FEATURES, _LABELS = _draw_examples()
_ONE_EACH = np.arange(_NUM_EXAMPLES)
_GRADIENTS = {"steps": 3, "gradient_clip_norm": 0.6, "loss": "sigmoid"}
_FEATURE_COVARIANCE = feature_covariance.FeatureCovariance(
  regularization=0.7,
  learning_rate=0.8,
  momentum=0.5,
  logit_bias=-2.0,
  **_GRADIENTS,
)


def _fit_federated(
  method, users, *, features=_FEATURES, labels=_LABELS, settings=None, **options
):
  options = {"epsilon": math.inf, **_OPTIONS, **options}
  protection = feature_settings.UserSettings(**settings or {})
  fitted = classifier.FeatureClassifier(method, users=protection, **options)
  return fitted.fit(features, labels, users)


def _fit_central(method):
  fitted = classifier.FeatureClassifier(method, epsilon=math.inf, **_OPTIONS)
  return fitted.fit(_FEATURES, _LABELS)


def _assert_same(found, expected):
  assert np.abs(expected.coef_).max() > 0.1
  np.testing.assert_allclose(found.coef_, expected.coef_, atol=1e-5)
  assert found.score(_FEATURES, _LABELS) == expected.score(_FEATURES, _LABELS)


@pytest.fixture(name="without_noise")
def _without_noise(monkeypatch):
  """Fits that plan noise, and report it, but add none."""

  def create_aggregator(self, name):
    del name
    return clip_only.ClipOnlyConfig().create(self.num_clients).factory

  monkeypatch.setattr(rounds_lib.Rounds, "create_aggregator", create_aggregator)


def _check_report(report, releases):
  """Checks the report of a fit with the target `_TARGET`."""
  assert report.unit == "user"
  assert report.neighboring_relation == (
    "a user's slot stays empty; the number of slots is public"
  )
  assert any("number of users" in line for line in report.assumptions)
  assert [(r["name"], r["count"]) for r in report.releases] == releases
  accountant = dp_accounting.pld.PLDAccountant()
  for release in report.releases:
    event = dp_accounting.GaussianDpEvent(release["noise_multiplier"])
    assert release["event"] == repr(event)
    accountant.compose(event, release["count"])
  epsilon = accountant.get_epsilon(1e-3)
  assert report.epsilon == pytest.approx(epsilon, rel=1e-3)
  assert 1.99 < report.epsilon <= 2


def test_least_squares(without_noise):
  """One round, and the defaults are those of its noise."""
  method = least_squares.LeastSquares(covariance_share=0.2)
  found = _fit_federated(method, _ONE_EACH, **_TARGET)
  _check_report(found.report_, [("statistics", 1)])
  regularization = found.report_.hyperparameters["regularization"]
  # A fifth of the budget is the covariance's.
  stddev = found.report_.releases[0]["noise_multiplier"] * math.sqrt(5)
  size = examples_lib.ProblemSize(_NUM_EXAMPLES, _DIM, _NUM_CLASSES, 1.5)
  stddevs = {"covariance": stddev, "class_sum": stddev / 2}
  resolved = method.resolve(size, stddevs)
  assert regularization == pytest.approx(resolved.regularization)
  central = least_squares.LeastSquares(regularization=regularization)
  _assert_same(found, _fit_central(central))


@pytest.mark.slow
def test_feature_covariance(without_noise):
  """A round, and one for each step."""
  method = _FEATURE_COVARIANCE
  found = _fit_federated(method, _ONE_EACH, **_TARGET)
  _check_report(found.report_, [("covariance", 1), ("gradient", 3)])
  _assert_same(found, _fit_central(method))
  assert found.report_.hyperparameters == dataclasses.asdict(method)


def test_sgd():
  """Steps are of the gradient over what users count for at most."""
  found = _fit_federated(
    sgd.Sgd(learning_rate=2.0, **_GRADIENTS),
    _ONE_EACH,
    settings={"user_clip_norm": 4.0},
  )
  _assert_same(found, _fit_central(sgd.Sgd(learning_rate=0.5, **_GRADIENTS)))
  assert found.report_.epsilon == math.inf
  assert [r["count"] for r in found.report_.releases] == [3]
  assert "NonPrivate" in found.report_.releases[0]["event"]


def test_noise_of_gradients():
  """It is all there is in a step, where all features are zeros.

  False alarms: five standard errors, 1.6 % each.
  """
  num_classes, dim, num_users = 31, 60, 3
  found = _fit_federated(
    sgd.Sgd(steps=1, learning_rate=0.7, momentum=0.0, gradient_clip_norm=0.3),
    np.arange(2 * num_users) % num_users,
    features=np.zeros([2 * num_users, dim]),
    labels=np.zeros([2 * num_users], np.int64),
    settings={"user_clip_norm": 4.0},
    num_classes=num_classes,
    **_TARGET,
  )
  # A user sends 4 gradients of norm 0.3 at most, and counts for as many.
  noise_multiplier = found.report_.releases[0]["noise_multiplier"]
  expected = 0.7 * noise_multiplier * 4 * 0.3 / (4 * num_users)
  assert found.coef_.std() == pytest.approx(expected, rel=0.082)


@pytest.mark.slow
def test_runtime_of_tff():
  """Also several examples a user: their sums, if not clipped, are pooled."""
  method = _FEATURE_COVARIANCE
  found = _fit_federated(
    method,
    np.array(list("badcbadcbadc")),
    settings={"runtime": "tff", "user_clip_norm": 3.0},
  )
  _assert_same(found, _fit_central(method))


@pytest.mark.parametrize(
  ("method", "users", "message"),
  [
    (newton.Newton(), _ONE_EACH, "method must be one that protects users"),
    (sgd.Sgd(), _ONE_EACH[:-1], "users must be"),
    (sgd.Sgd(), ["a", *_ONE_EACH.astype(str)[:-2], ""], "users must have na"),
  ],
)
def test_refuses(method, users, message):
  with pytest.raises(errors.FieldError, match=message):
    _fit_federated(method, users)


def test_one_user_alone_is_not_protected():
  with pytest.raises(errors.FieldError, match="users must be two or more whe"):
    _fit_federated(sgd.Sgd(), [7] * len(_ONE_EACH), epsilon=1.0, delta=0.1)


def test_an_epsilon_that_needs_too_much_noise():
  with pytest.raises(errors.FieldError, match="epsilon must need noise of 1,"):
    _fit_federated(
      least_squares.LeastSquares(), _ONE_EACH, epsilon=1e-9, delta=1e-100
    )


@pytest.mark.slow
def test_noise_of_the_release(tmp_path):
  """As the budget plans it, fresh for each number, tensor and round.

  False alarms: once in 10^6 runs, see `noise_theory.alarms`; of the numbers on
  the diagonal and beside it five standard errors of 2.3 % and 0.5 %.
  """
  dim, num_classes, num_rounds, share = 60, 31, 16, 0.3
  length = federated_statistics.packed_size(dim)
  examples = examples_lib.ClippedExamples(
    np.zeros([3, dim]), np.zeros(3, int), num_classes=num_classes, clip_norm=2.0
  )
  create_dataset = rounds_lib.write_clients(tmp_path, examples, np.arange(3))
  name = rounds_lib.STATISTICS
  planned = [budget_lib.PlannedRelease(name, count=num_rounds)]
  budget = budget_lib.calibrate(planned, epsilon=4.0, delta=1e-5)
  config = federated_statistics.StatisticsConfig(
    examples.size, covariance_share=share
  )
  matrices, released = [], []
  with runtime_lib.create_runtime("in_process") as started:
    releases = noise.Releases(budget, np.random.SeedSequence())
    rounds = rounds_lib.Rounds(started, create_dataset, 3, releases, 0.5)
    release = rounds.begin(name, config)
    for _ in range(num_rounds):
      tensors = release()
      released.append([np.ravel(tensor)[:length] for tensor in tensors])
      matrices.append(config.restore(tensors, 3)[0])
    with pytest.raises(RuntimeError, match="must be made at most 16"):
      release()
  stddev = budget.noise_multipliers[name] * 0.5
  assert stddev > 1
  drawn = np.array(released, np.float64) * 3 / stddev
  assert not noise_theory.alarms(drawn, np.eye(num_rounds))
  # Restored matrices are scaled by C^2 = 4, over the root of their share.
  stddev *= 4 / np.sqrt(share)
  diagonals = np.array([np.diagonal(matrix) for matrix in matrices])
  assert diagonals.std() == pytest.approx(stddev, rel=0.115)
  above = np.array([m[np.triu_indices(dim, 1)] for m in matrices])
  assert above.std() == pytest.approx(stddev / np.sqrt(2), rel=0.025)
