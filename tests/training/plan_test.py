"""Tests of what a dry run tells of privacy."""

import types

from tff_fedemb.participation import poisson
from tff_fedemb.privacy import planning
from tff_fedemb.training import plan as dry_run


def test_the_cost_that_is_told_is_the_one_at_the_end():
  # The demo's settings, of which RDP says 3.239.
  claim = poisson.Poisson(20_000, 512)
  plan = planning.create_plan("gaussian", claim, 60, 0.8, 2e-5)
  experiment = types.SimpleNamespace(
    mechanism=types.SimpleNamespace(config=plan.mechanism, strategy=None),
    participation=claim,
    delta=2e-5,
    task=types.SimpleNamespace(train_users=range(20_000)),
  )
  assert f"{planning.create_report(plan).epsilon:.4g}" == "2.562"
  assert dry_run.tell_cost(experiment, 60).startswith(
    "These settings cost epsilon = 2.562 at delta = 2e-05 in 60 rounds"
  )
