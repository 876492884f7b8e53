"""Tests of the private classifier."""

import math

import dp_accounting
import numpy as np
import pytest
from sklearn import base
from sklearn import model_selection

from tests.accounting import gaussian
from tff_fedemb import errors
from tff_fedemb.features import classifier
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import noise
from tff_fedemb.features import registry
from tff_fedemb.features import sgd

_DELTA = 1e-5
_NUM_CLASSES = 3
_METHODS = [
  registry.METHODS.create("sgd", steps=5),
  registry.METHODS.create("least_squares", covariance="per_class"),
  registry.METHODS.create("newton", steps=2),
  registry.METHODS.create("feature_covariance", steps=4),
]
_of_all = pytest.mark.parametrize(
  "method", _METHODS, ids=lambda method: type(method).__name__
)


def _problem(num=60, dim=4):
  """Classes that are far from one another."""
  rng = np.random.default_rng(0)
  labels = np.arange(num) % _NUM_CLASSES
  features = 0.1 * rng.standard_normal([num, dim])
  features[np.arange(num), labels] += 1.0
  return features, labels


_FEATURES, _LABELS = _problem()


def _create(method=_METHODS[0], **options):
  defaults = {"epsilon": 1.0, "delta": _DELTA, "seed": 0}
  defaults["num_classes"] = _NUM_CLASSES
  return classifier.FeatureClassifier(method, **defaults | options)


def _fit(*arguments, **options):
  return _create(*arguments, **options).fit(_FEATURES, _LABELS)


@pytest.mark.parametrize("epsilon", [0.5, 8.0])
@_of_all
def test_report_is_of_what_was_released(monkeypatch, method, epsilon):
  opened = []
  open_release = noise.Releases.open

  def record(self, name, **options):
    opened.append(name)
    return open_release(self, name, **options)

  monkeypatch.setattr(noise.Releases, "open", record)
  report = _fit(method, epsilon=epsilon).report_
  counts = {release["name"]: release["count"] for release in report.releases}
  assert counts == {each: opened.count(each) for each in opened}
  multipliers = []
  rdp = dp_accounting.rdp.RdpAccountant()
  for release in report.releases:
    event = dp_accounting.GaussianDpEvent(release["noise_multiplier"])
    assert release["event"] == repr(event)
    multipliers += [release["noise_multiplier"]] * release["count"]
    rdp.compose(event, release["count"])
  found = report.epsilon_with_secret_noise
  exact = gaussian.exact_epsilon(multipliers, _DELTA)
  assert found == pytest.approx(exact, rel=1e-6)
  assert epsilon * (1 - 1e-3) < exact <= epsilon * (1 + 1e-9)
  assert found < rdp.get_epsilon(_DELTA) < 1.5 * found
  assert (report.accountant, report.delta) == ("gaussian", _DELTA)
  assert report.neighboring_relation == (
    "an example's slot stays empty; the number of slots is public"
  )


@_of_all
def test_without_noise_classes_are_found(method):
  fitted = _fit(method, epsilon=math.inf, delta=None)
  assert (fitted.coef_.shape, fitted.coef_.dtype) == ((3, 4), np.float64)
  np.testing.assert_array_equal(fitted.predict(_FEATURES), _LABELS)
  report = fitted.report_
  assert report.epsilon == math.inf
  for release in report.releases:
    assert release["noise_multiplier"] == 0
    assert "NonPrivate" in release["event"]
  # With the defaults that depend on the problem.
  assert set(report.hyperparameters) == set(vars(method))
  assert None not in report.hyperparameters.values()
  for words in ("training data", "floating-point"):
    assert sum(words in text for text in report.not_covered) == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_features_are_clipped_in_predictions_too(monkeypatch, dtype):
  fitted = _fit(epsilon=math.inf, clip_norm=0.5)
  norms = np.linalg.norm(_FEATURES, axis=1, keepdims=True)
  # Chunk by chunk.
  monkeypatch.setattr(examples_lib, "_NUMBERS_OF_CHUNK", 7 * (4 + 3))
  logits = fitted.decision_function(_FEATURES.astype(dtype))
  assert logits.dtype == dtype
  expected = (0.5 * _FEATURES / norms) @ fitted.coef_.T
  np.testing.assert_allclose(logits, expected, atol=1e-6)


@_of_all
def test_seeds(method):
  def fit(seed):
    return _fit(method, seed=seed).coef_

  np.testing.assert_array_equal(fit(1), fit(1))
  assert (fit(1) != fit(2)).all()
  # Nobody can know this one.
  assert (fit(None) != fit(None)).all()


def test_epsilon_is_claimed_for_secret_noise_alone():
  secret, known, no_noise = (
    _fit(**options).report_
    for options in ({"seed": None}, {"seed": 1}, {"epsilon": math.inf})
  )
  assert 0.99 < secret.epsilon == secret.epsilon_with_secret_noise <= 1
  assert known.epsilon == math.inf
  assert known.epsilon_with_secret_noise == secret.epsilon
  (warning,) = known.warnings
  assert "the noise is from a seed" in warning
  assert not secret.warnings and not no_noise.warnings


def test_one_example_alone_is_not_protected():
  one, label = _FEATURES[:1], _LABELS[:1]
  with pytest.raises(ValueError, match="examples must be two or more where"):
    _create().fit(one, label)
  _create(epsilon=math.inf).fit(one, label)


def test_features_under_a_mask_are_refused():
  masked = np.ma.masked_greater(_FEATURES, 1.0)
  fitted = _fit()
  for refuse in (
    lambda: fitted.predict(masked),
    lambda: _create().fit(masked, _LABELS),
  ):
    with pytest.raises(ValueError, match="features must have no masked value"):
      refuse()


def test_weights_must_be_finite():
  estimator = _create(sgd.Sgd(steps=20, learning_rate=1e308), epsilon=0.5)
  with (
    np.errstate(all="ignore"),
    pytest.raises(ValueError, match=r"learning_rate must .* not finite"),
  ):
    estimator.fit(_FEATURES, _LABELS)
  assert not hasattr(estimator, "coef_")


def test_scikit_learns_tools():
  estimator = _create(epsilon=math.inf, seed=7)
  assert base.is_classifier(estimator)
  search = model_selection.GridSearchCV(
    estimator, {"clip_norm": [0.5, 1.0], "method": _METHODS}, cv=2
  ).fit(_FEATURES, _LABELS)
  assert search.best_score_ == 1.0


def test_a_delta_beyond_the_end_of_noise_is_warned_of():
  # Nothing was said of it.
  method = registry.METHODS["least_squares"]()
  (warning,) = _fit(method, delta=1e-60, seed=None).report_.warnings
  assert "noise has gaps beyond 10.5 standard deviations" in warning
  assert not _fit(method, seed=None).report_.warnings
  with pytest.raises(errors.FieldError, match=r"delta must be in \[1e-250, 1"):
    _fit(method, delta=1e-300)
