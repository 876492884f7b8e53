"""Mechanisms as they are: their audits refute nothing, again and again.

The attacker has what the mechanism alone releases, of canaries that are nearly
all that it releases: no training blurs what can be seen. `pytest -s` prints the
rows of a table in docs/audits.md.
"""

import functools

import numpy as np
import pytest
from scipy import stats

from tests.mechanisms import released
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.audit import canary_updates
from tff_fedemb.audit import one_run
from tff_fedemb.audit import registry
from tff_fedemb.audit import scores as scores_lib
from tff_fedemb.features import classifier
from tff_fedemb.features import least_squares
from tff_fedemb.participation import min_separation

_DELTA = 1e-5
_REPEATS = 200
_SIGNIFICANCE = 0.1
_ROUNDS, _SEPARATION = 8, 2
_CANARIES = 400  # Each repeat has so many.
_FEATURES = 100  # Each fit has so many, and as many canaries.
# An audit finds at least this share of the claim.
_SHARE = 0.7


def _release(name):
  """The claimed epsilon, and the scores and coins of all repeats in a row."""
  correlated = "gaussian" not in name
  aggregation = released.Aggregation(
    name,
    shapes=[(_REPEATS * _CANARIES,)],
    clients_per_round=1.0,
    clip_norm=1.0,
    noise_multiplier=2.0 if name != "tree" else 5.0,
    **({"rounds": _ROUNDS, "min_separation": 2} if correlated else {}),
  )
  noise = aggregation.run_on_zeros(_ROUNDS).means
  mechanism = aggregation.mechanism
  aggregation.close()
  included = np.random.default_rng(1).random(noise.shape[1]) < 0.5
  takes_part = np.zeros(noise.shape, bool)
  takes_part[::_SEPARATION] = True
  matrix = np.eye(_ROUNDS)
  if mechanism.strategy is not None:
    matrix = mechanism.strategy.round_noise_matrix(_ROUNDS)
  scores = canary_updates.match(
    noise + takes_part * included, takes_part, matrix
  )
  claim = min_separation.MinSeparation(2 * _CANARIES, _CANARIES)
  noise_of_round = composition.noise_of(mechanism)
  ledger = ledger_lib.create_ledger(
    claim.for_rounds(_ROUNDS), noise_of_round, _ROUNDS, delta=_DELTA
  )
  return ledger.tightest_epsilon(), scores, included


def _fit_features():
  """As `_release`, of a classifier that canaries are the only examples of.

  A canary is a direction of its own, or zeros in its place, which add nothing.
  """
  included = np.random.default_rng(2).random([_REPEATS, _FEATURES]) < 0.5
  labels = np.zeros(_FEATURES, np.int64)
  scores = []
  for coins in included:
    fitted = classifier.FeatureClassifier(
      least_squares.LeastSquares(), num_classes=2, epsilon=4.0, delta=_DELTA
    ).fit(np.diag(coins.astype(np.float32)), labels)
    scores.append(fitted.coef_[0])
  return fitted.report_.epsilon, np.concatenate(scores), included.ravel()


_MECHANISMS = {
  name: functools.partial(_release, name)
  for name in ("gaussian", "secure_gaussian", "tree", "blt", "banded")
} | {"feature fit": _fit_features}


def _bound(method, scores, included, significance):
  return registry.bound_epsilon(
    method,
    scores_lib.Scores.of_coins(scores, included),
    delta=_DELTA,
    significance=significance,
  )["epsilon_lower"]


@pytest.mark.parametrize(
  "name",
  [
    pytest.param(
      name,
      marks=[] if name == "banded" else [pytest.mark.slow],
    )
    for name in _MECHANISMS
  ],
)
def test_honest_mechanism_is_not_refuted(name, monkeypatch):
  claimed, scores, included = _MECHANISMS[name]()
  # More are not refused once in a million times.
  allowed = stats.binom.ppf(1 - 1e-6, _REPEATS, _SIGNIFICANCE)
  # All canaries together give the test its power.
  pooled = {
    method: _bound(method, scores[:20_000], included[:20_000], 1e-3)
    for method in registry.METHODS
  }
  # Trying several numbers would take long.
  monkeypatch.setattr(one_run, "_guesses_to_try", lambda number: [(20, 20)])
  refuted = {}
  for method in ("clopper_pearson", "fdp_one_run", "gdp_clopper_pearson"):
    bounds = [
      _bound(method, *part, _SIGNIFICANCE)
      for part in zip(
        np.split(scores, _REPEATS), np.split(included, _REPEATS), strict=True
      )
    ]
    refuted[method] = sum(bound > claimed for bound in bounds)
  print(f"\n{name}: claimed {claimed:.2f}, refuted {refuted}, found {pooled}")
  assert max(refuted.values()) <= allowed
  assert max(pooled.values()) <= claimed
  # No threshold is chosen for it, which once in some thousand times goes wrong.
  assert pooled["area"] > _SHARE * claimed
