"""Claims of privacy that a run does not support: each is refused in words.

The line that refuses says what was assumed and what was run.
"""

import dp_accounting
import pytest

from tff_fedemb.accounting import composition
from tff_fedemb.accounting import epsilon as epsilon_lib
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.mechanisms import tree_strategy
from tff_fedemb.participation import registry as participations
from tff_fedemb.planning import planning

_NOISE = composition.Noise(4.0)
_TREE = composition.Noise(4.0, tree_strategy.TreeStrategy())
_OTHER_TREE = composition.Noise(8.0, _TREE.strategy)


def _claim(kind):
  return participations.create_participation(
    kind,
    num_users=1_000,
    users_per_round=50,
    period=4 if kind == "cyclic_poisson" else None,
  )


@pytest.mark.parametrize(
  ("mechanism", "kind"), [("tree", "poisson"), ("banded", "fixed_size")]
)
def test_amplification_of_correlated_noise(mechanism, kind):
  plan = planning.create_plan(
    mechanism, _claim("min_separation"), 40, 4.0, 1e-5
  )
  ledger = ledger_lib.Ledger(_claim(kind), delta=1e-5)
  message = (
    f"participation must be min_separation with mechanism {mechanism}, .*"
    f" amplification by sampling assumes fresh noise .* found {kind}."
  )
  with pytest.raises(ValueError, match=message):
    ledger.with_rounds(plan.noise)
  with pytest.raises(ValueError, match=message):
    planning.create_plan(mechanism, _claim(kind), 40, 4.0, 1e-5)


@pytest.mark.parametrize("kind", ["fixed_size", "poisson", "cyclic_poisson"])
def test_an_accountant_that_does_not_know_the_sampling(kind):
  claim = _claim(kind)
  with pytest.raises(ValueError, match=f"for {kind} participation, found"):
    ledger_lib.Ledger(claim, delta=1e-5, accountants=("gaussian",))
  counts = [(claim.sampled_event(dp_accounting.GaussianDpEvent(4.0)), 1)]
  relation = claim.neighboring_relation
  with pytest.raises(ValueError, match="event must be supported"):
    epsilon_lib.epsilon_of(
      counts, 1e-5, accountant="gaussian", neighboring_relation=relation
    )


@pytest.mark.parametrize(
  "noises", [(_TREE, _NOISE), (_NOISE, _TREE), (_TREE, _OTHER_TREE)]
)
def test_correlated_noise_that_is_not_the_same_in_all_rounds(noises):
  ledger = ledger_lib.Ledger(_claim("min_separation"), delta=1e-5)
  ledger = ledger.with_rounds(noises[0])
  with pytest.raises(
    ValueError, match=r"must be the same in all rounds .* found .*Tree"
  ):
    ledger.with_rounds(noises[1])
