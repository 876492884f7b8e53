"""Tests of the private classifier."""

import json
import math

import dp_accounting
import numpy as np
import pytest
from sklearn import base
from sklearn import exceptions
from sklearn import model_selection

from tests.privacy import gaussian
from tff_fedemb import errors
from tff_fedemb.features import budget as budget_lib
from tff_fedemb.features import classifier
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import feature_covariance
from tff_fedemb.features import least_squares
from tff_fedemb.features import newton
from tff_fedemb.features import noise
from tff_fedemb.features import sgd

_DELTA = 1e-5
_NUM_CLASSES = 3

_METHODS = {
  "sgd": sgd.Sgd(steps=5),
  "least_squares": least_squares.LeastSquares(covariance="per_class"),
  "newton": newton.Newton(steps=2),
  "feature_covariance": feature_covariance.FeatureCovariance(steps=4),
}


def _create(method=None, **options):
  return classifier.FeatureClassifier(
    method or _METHODS["sgd"],
    **{
      "num_classes": _NUM_CLASSES,
      "epsilon": 1.0,
      "delta": _DELTA,
      "seed": 0,
      **options,
    },
  )


def _problem(num=60, dim=4):
  """Classes that are far from one another."""
  rng = np.random.default_rng(0)
  labels = np.arange(num) % _NUM_CLASSES
  features = 0.1 * rng.standard_normal([num, dim])
  features[np.arange(num), labels] += 1.0
  return features, labels


@pytest.mark.parametrize("epsilon", [0.5, 8.0])
@pytest.mark.parametrize("name", _METHODS)
def test_report_is_of_what_was_released(monkeypatch, name, epsilon):
  opened = []
  open_release = noise.Releases.open

  def record(self, name, **options):
    opened.append(name)
    return open_release(self, name, **options)

  monkeypatch.setattr(noise.Releases, "open", record)
  method = _METHODS[name]
  report = _create(method, epsilon=epsilon).fit(*_problem()).report_
  counts = {release["name"]: release["count"] for release in report.releases}
  assert counts == {each: opened.count(each) for each in opened}
  multipliers, events = [], []
  for release in report.releases:
    event = dp_accounting.GaussianDpEvent(release["noise_multiplier"])
    assert release["event"] == repr(event)
    assert release["sampling_probability"] == 1.0
    multipliers += [release["noise_multiplier"]] * release["count"]
    events += [event] * release["count"]
  exact = gaussian.exact_epsilon(multipliers, _DELTA)
  assert report.epsilon_with_secret_noise == pytest.approx(exact, rel=1e-6)
  assert epsilon * (1 - 1e-3) < exact <= epsilon * (1 + 1e-9)
  rdp = dp_accounting.rdp.RdpAccountant()
  bound = rdp.compose(dp_accounting.ComposedDpEvent(events)).get_epsilon(_DELTA)
  assert (
    report.epsilon_with_secret_noise
    < bound
    < 1.5 * report.epsilon_with_secret_noise
  )
  assert report.accountant == "gaussian"
  assert report.delta == _DELTA
  assert report.unit == "example"
  assert report.neighboring_relation == "add or remove one example"


@pytest.mark.parametrize("name", _METHODS)
def test_report_is_json_with_all_hyperparameters(name):
  method = _METHODS[name]
  fitted = _create(method, epsilon=math.inf).fit(*_problem())
  text = json.dumps(fitted.report_.to_json(), allow_nan=False)
  restored = json.loads(text)
  assert restored["epsilon"] == "inf"
  for release in restored["releases"]:
    assert release["noise_multiplier"] == 0
    assert "NonPrivate" in release["event"]
  assert set(restored["hyperparameters"]) == set(method.hyperparameter_names())
  # With the defaults that depend on the problem.
  for key, value in restored["hyperparameters"].items():
    assert value is not None or key == "batch_size"
  assert restored["assumptions"]
  for words in ("training data", "floating-point"):
    assert sum(words in text for text in restored["not_covered"]) == 1


def test_report_of_sampled_steps_and_numbers_of_numpy():
  method = sgd.Sgd(
    steps=np.int64(2),
    learning_rate=np.float32(0.5),
    batch_size=np.float32(30),
    gradient_clip_norm=np.float16(0.5),
  )
  report = (
    _create(
      method,
      num_classes=np.int64(_NUM_CLASSES),
      epsilon=np.float32(0.05),
      delta=np.float32(_DELTA),
      clip_norm=np.float32(1),
      seed=np.int64(1),
    )
    .fit(*_problem())
    .report_
  )
  restored = json.loads(json.dumps(report.to_json(), allow_nan=False))
  assert restored["hyperparameters"]["steps"] == 2
  assert restored["hyperparameters"]["learning_rate"] == 0.5
  (release,) = restored["releases"]
  assert (release["count"], release["sampling_probability"]) == (2, 0.5)
  assert restored["delta"] == pytest.approx(_DELTA)
  event = dp_accounting.SelfComposedDpEvent(
    dp_accounting.PoissonSampledDpEvent(
      0.5, dp_accounting.GaussianDpEvent(release["noise_multiplier"])
    ),
    2,
  )
  pld = dp_accounting.pld.PLDAccountant().compose(event)
  epsilon = pld.get_epsilon(report.delta)
  assert report.epsilon_with_secret_noise == pytest.approx(epsilon, rel=1e-9)
  assert 0.05 * (1 - 5e-3) < epsilon <= np.float32(0.05)
  assert report.accountant == "pld"


def test_epsilon_is_of_releases_alone():
  # Neither of what is done to features, nor of the data, nor of the seed.
  features, labels = _problem()
  reports = [
    _create(**options).fit(data, labels).report_
    for data, options in (
      (features, {}),
      (features, {"seed": 1}),
      (features, {"scaling": "unit_norm"}),
      (-5 * features[::-1], {"clip_norm": 7.0}),
    )
  ]
  for report in reports[1:]:
    assert (
      report.epsilon_with_secret_noise == reports[0].epsilon_with_secret_noise
    )
    assert report.releases == reports[0].releases


@pytest.mark.parametrize("name", _METHODS)
def test_without_noise_classes_are_found(name):
  features, labels = _problem()
  fitted = _create(_METHODS[name], epsilon=math.inf, delta=None).fit(
    features, labels
  )
  assert fitted.coef_.shape == (_NUM_CLASSES, 4)
  assert fitted.coef_.dtype == np.float64
  np.testing.assert_array_equal(fitted.classes_, [0, 1, 2])
  logits = fitted.decision_function(features)
  assert logits.shape == (60, _NUM_CLASSES)
  predicted = fitted.predict(features)
  assert predicted.shape == (60,)
  np.testing.assert_array_equal(predicted, logits.argmax(axis=1))
  assert fitted.score(features, labels) == 1.0
  np.testing.assert_array_equal(predicted, labels)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_features_are_clipped_in_predictions_too(monkeypatch, dtype):
  features, labels = _problem()
  fitted = _create(epsilon=math.inf, clip_norm=0.5).fit(features, labels)
  norms = np.linalg.norm(features, axis=1, keepdims=True)
  # Chunk by chunk.
  monkeypatch.setattr(examples_lib, "_NUMBERS_OF_CHUNK", 7 * (4 + 3))
  logits = fitted.decision_function(features.astype(dtype))
  assert logits.dtype == dtype
  np.testing.assert_allclose(
    logits, (0.5 * features / norms) @ fitted.coef_.T, atol=1e-6
  )


def test_not_fitted():
  features, labels = _problem()
  estimator = _create()
  for unfitted in (estimator, base.clone(_create().fit(features, labels))):
    for call in (unfitted.predict, unfitted.decision_function):
      with pytest.raises(exceptions.NotFittedError, match="not fitted yet"):
        call(features)


def test_features_must_be_as_wide_as_those_of_the_fit():
  fitted = _create(epsilon=math.inf).fit(*_problem())
  for features in (np.ones([7, 3]), np.ones(4), 1.0):
    for call in (fitted.predict, fitted.decision_function):
      with pytest.raises(ValueError, match=r"features must be \[n, 4\], found"):
        call(features)
  with pytest.raises(ValueError, match="features must be finite numbers"):
    fitted.predict(np.full([2, 4], np.nan))


@pytest.mark.parametrize("name", _METHODS)
def test_seeds(name):
  features, labels = _problem()

  def fit(seed):
    return _create(_METHODS[name], seed=seed).fit(features, labels).coef_

  np.testing.assert_array_equal(fit(1), fit(1))
  assert (fit(1) != fit(2)).all()
  # Nobody can know this one.
  first, second = fit(None), fit(None)
  assert (first != second).all()


def test_epsilon_is_claimed_for_secret_noise_alone():
  secret, known, no_noise = (
    _create(**options).fit(*_problem()).report_
    for options in ({"seed": None}, {"seed": 1}, {"epsilon": math.inf})
  )
  assert 0.99 < secret.epsilon == secret.epsilon_with_secret_noise <= 1
  assert known.epsilon == math.inf
  assert known.epsilon_with_secret_noise == secret.epsilon
  (warning,) = known.warnings
  assert "the noise is from a seed" in warning
  assert not secret.warnings and not no_noise.warnings


def test_sampling_does_not_move_the_noise(monkeypatch):
  # Of the same size, whatever the cost.
  def calibrate(releases, **_):
    multipliers = {release.name: 1.0 for release in releases}
    return budget_lib.Budget(tuple(releases), multipliers, 1.0, _DELTA)

  drawn = []
  add_noise = noise.Release.add_noise

  def record(self, total):
    released = add_noise(self, total)
    drawn.append(released - total)
    return released

  monkeypatch.setattr(budget_lib, "calibrate", calibrate)
  # On no grid: the sums differ.
  monkeypatch.setattr(noise, "_ROUNDING", 2.0**-60)
  monkeypatch.setattr(budget_lib, "epsilon_of", lambda *_, **__: 1.0)
  monkeypatch.setattr(noise.Release, "add_noise", record)
  for batch_size, seed in ((None, 3), (7, 3), (7, 4)):
    method = sgd.Sgd(steps=2, batch_size=batch_size)
    _create(method, seed=seed).fit(*_problem())
  full, sampled, other = np.reshape(drawn, [3, 2, -1])
  np.testing.assert_allclose(sampled, full, atol=1e-12)
  assert (np.abs(full - other) > 1e-6).all()
  # Nor are both of the same numbers.
  assert (np.abs(full[0] - full[1]) > 1e-6).all()


def test_report_warns_of_a_delta_that_protects_nobody():
  features, labels = _problem()
  for delta, epsilon, num_warnings in (
    (0.016, 1.0, 0),
    (0.017, 1.0, 1),
    (0.017, math.inf, 0),
    (None, math.inf, 0),
  ):
    estimator = _create(delta=delta, epsilon=epsilon, seed=None)
    report = estimator.fit(features, labels).report_
    assert len(report.warnings) == num_warnings
    assert len(report.to_json()["warnings"]) == num_warnings


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weights_must_be_finite(dtype):
  features, labels = _problem()
  estimator = _create(sgd.Sgd(steps=20, learning_rate=1e308), epsilon=0.5)
  with (
    np.errstate(all="ignore"),
    pytest.raises(ValueError, match=r"learning_rate must .* not finite"),
  ):
    estimator.fit(features.astype(dtype), labels)
  assert not hasattr(estimator, "coef_")


def test_scikit_learns_tools():
  estimator = _create(epsilon=math.inf, seed=7)
  assert base.clone(estimator).get_params() == estimator.get_params()
  assert base.is_classifier(estimator)
  features, labels = _problem()
  scores = model_selection.cross_val_score(estimator, features, labels, cv=3)
  np.testing.assert_array_equal(scores, [1.0, 1.0, 1.0])
  search = model_selection.GridSearchCV(
    estimator,
    {"clip_norm": [0.5, 1.0], "method": list(_METHODS.values())},
    cv=2,
  ).fit(features, labels)
  assert search.best_score_ == 1.0


def test_features_may_be_lists_and_integers():
  fitted = _create(epsilon=math.inf).fit([[1, 0], [0, 1], [1, 1]], [0, 1, 2])
  assert fitted.predict([[2, 0]]).tolist() == [0]


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"scaling": "none"}, "scaling must be .* found 'none'"),
    ({"delta": None}, "delta must be given .* found nothing"),
    ({"method": sgd.Sgd}, "method must be a Method, found <class"),
    ({"seed": -1}, "seed must be .* found -1"),
    ({"split": {"hessian": 1}}, "split must .* gradient, found 'hessian'"),
    ({"method": sgd.Sgd(batch_size=61)}, "batch_size must be .* 60, found 61"),
  ],
)
def test_refuses(options, message):
  with pytest.raises(errors.FieldError, match=message):
    _create(**options).fit(*_problem())
