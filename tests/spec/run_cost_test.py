"""Tests of what a run settles once the number of its users is known."""

import dataclasses
import math

import pytest
import yaml

from tests.spec import specs
from tff_fedemb import errors
from tff_fedemb.participation import check_ins
from tff_fedemb.participation import min_separation
from tff_fedemb.spec import deployment
from tff_fedemb.spec import run_cost


@pytest.mark.parametrize(
  ("options", "message"),
  [
    (
      {"max_participations": 1},
      "max_participations must not be given without a d",
    ),
    ({"users_per_round": 10.5}, "users_per_round must be an integer"),
  ],
)
def test_draws_that_no_run_can_have_are_refused(options, message):
  claim = min_separation.MinSeparation(**{"users_per_round": 10} | options)
  with pytest.raises(errors.FieldError, match=message):
    run_cost.resolve_cost(specs.create(participation=claim), 100)


@pytest.mark.parametrize(
  ("asked", "of_server", "found"),
  [(None, None, None), (None, 3, 3), (2, 3, 2), (2, None, 2)],
)
def test_a_server_enforces_the_rounds_of_a_user(
  tmp_path, asked, of_server, found
):
  path = tmp_path / "own.yaml"
  values = {
    "description": "Own.",
    "availability": {"time_zones": {0: 1}, "base": 0.5, "amplitude": 0.2},
    "compute": {"milliseconds_per_example": 5},
    "server": {"deadline_minutes": 5, "max_participations": of_server},
  }
  path.write_text(yaml.safe_dump(values))
  spec = specs.create(
    participation=check_ins.CheckIns(
      users_per_round=10, max_participations=asked
    ),
    deployment=deployment.DeploymentConfig(deployment=str(path)),
  )
  claim = run_cost.resolve_cost(spec, 100).participation
  assert claim.max_participations == found


@dataclasses.dataclass(frozen=True)
class _Twice(check_ins.CheckIns):
  """A device may report twice in a round."""

  @property
  def sensitivity_in_clip_norms(self):
    return 2.0


def test_a_class_of_ones_own_keeps_its_claims():
  spec = specs.create(
    participation=_Twice(users_per_round=10),
    deployment=deployment.DeploymentConfig(deployment="ideal"),
  )
  claim = run_cost.resolve_cost(spec, 100).participation
  assert isinstance(claim, _Twice)
  assert (claim.num_users, claim.sensitivity_in_clip_norms) == (100, 2.0)


@pytest.mark.parametrize("seed", [None, 5])
def test_noise_of_a_known_seed_costs_as_much_as_none(seed):
  values = {"kind": "blt", "noise_multiplier": 8.0, "noise_seed": seed}
  spec = specs.create(
    mechanism=values,
    participation=min_separation.MinSeparation(users_per_round=10),
  )
  ledger = run_cost.resolve_cost(spec, 100).plan_ledger()
  assert math.isfinite(ledger.tightest_epsilon()) == (seed is None)


def test_without_a_task_noise_is_taken_for_a_gaussian():
  mechanism = {"kind": "gaussian", "noise_multiplier": 4.0, "clip_norm": 0.1}
  cost = run_cost.resolve_cost(specs.create(mechanism=mechanism), 100)
  assert cost.num_parameters is None and cost.users_digest is None
  ideal, exact = cost.plan_ledger(), cost.plan_ledger(num_parameters=10**6)
  assert ideal.round_sum is None and exact.round_sum is not None
  assert ideal.tightest_epsilon() < exact.tightest_epsilon()


@pytest.mark.parametrize(("num_users", "expected"), [(24, 24), (1000, 256)])
def test_a_round_of_pooled_data_has_as_many_users_as_there_are(
  num_users, expected
):
  spec = specs.create(algorithm="centralized", participation=None)
  cost = run_cost.resolve_cost(spec, num_users)
  assert cost.participation.users_per_round == expected
