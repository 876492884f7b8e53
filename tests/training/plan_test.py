"""Tests of what a plan tells of privacy before there is a run."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from tests.participation import traces
from tests.training import tiny_specs
import tff_fedemb as fe
from tff_fedemb import errors
from tff_fedemb.accounting import arithmetic
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.participation import participation_check
from tff_fedemb.participation import participation_trace
from tff_fedemb.planning import planning
from tff_fedemb.spec import experiment
from tff_fedemb.spec import run_cost
from tff_fedemb.training import plan as plan_lib

_SCRIPT = """
import sys
import numpy as np
import binaries.account
import tff_fedemb as fe

images = np.zeros([40, 8, 8, 1], np.uint8)
task = fe.ArrayTask(
  images, np.arange(40) % 4, np.arange(40), test=(images, np.arange(40) % 4)
)
spec = fe.RunSpec(
  task=task,
  participation=fe.Poisson(users_per_round=4),
  mechanism=fe.Gaussian(noise_multiplier=1.0),
  rounds=3,
)
# Also where no task that comes along is known yet.
kind = spec.to_json()["task"]["kind"]
assert kind == "tff_fedemb.run.array_task:ArrayTask", kind
plan = fe.plan(spec, measure=False)
assert 0 < plan.epsilon < 10, plan.epsilon
slow = {"jax", "tensorflow", "tensorflow_federated"} & {*sys.modules}
assert not slow, slow
print(plan)
"""


def test_noise_of_a_known_seed_protects_nobody():
  images, labels = np.zeros([40, 8, 8, 1], np.uint8), np.arange(40) % 4
  spec = fe.RunSpec(
    task=fe.ArrayTask(images, labels, np.arange(40), test=(images, labels)),
    participation=fe.MinSeparation(users_per_round=4),
    mechanism=fe.Tree(noise_multiplier=2.0, noise_seed=1),
    rounds=3,
  )
  plan = fe.plan(spec, measure=False)
  assert plan.epsilon == np.inf
  assert "it protects nobody (epsilon = inf)" in " ".join(plan.lines)
  assert "below 10" not in str(plan)
  cost = run_cost.resolve_cost(spec, 40)
  assert "protects nobody (epsilon = inf)" in plan_lib.tell_cost(cost)


@pytest.mark.parametrize("num_users", [1, 5])
def test_users_who_are_too_few(num_users):
  images, labels = np.zeros([10, 8, 8, 1], np.uint8), np.arange(10) % 2
  spec = fe.RunSpec(
    task=fe.ArrayTask(
      images, labels, np.arange(10) % num_users, test=(images, labels)
    ),
    participation=fe.Poisson(users_per_round=1),
    mechanism=fe.Gaussian(noise_multiplier=1.0),
    rounds=2,
  )
  if num_users > 1:
    told = str(fe.plan(spec, measure=False))
    assert "warning: 5 users are too few to hide one: with a probab" in told
    return
  with pytest.raises(errors.FieldError, match="users must be two or more wh"):
    fe.plan(spec, measure=False)
  # Without noise nothing is promised.
  no_noise = dataclasses.replace(spec, mechanism=fe.ClipOnly())
  assert fe.plan(no_noise, measure=False).epsilon == np.inf


def test_so_much_noise_that_epsilon_is_0():
  spec = dataclasses.replace(
    tiny_specs.create(),
    mechanism=fe.Gaussian(noise_multiplier=20.0, clip_norm=0.1),
    rounds=2,
    delta=0.1,
  )
  plan = fe.plan(spec, measure=False)
  assert plan.epsilon == 0
  assert "That is below 10, with the users there are." in plan.lines


def _spec(**options):
  # The demo's settings, of which RDP says 3.239.
  return fe.RunSpec(
    task=fe.create_task("handwriting", num_users=20_000),
    participation=fe.Poisson(users_per_round=512),
    mechanism=fe.Gaussian(noise_multiplier=0.8, clip_norm=0.1),
    rounds=60,
    **options,
  )


def test_a_plan_has_the_figures_and_tells_them():
  told = plan_lib.tell_cost(run_cost.resolve_cost(_spec(), 20_000))
  assert told.startswith(
    "These settings cost epsilon = 2.562 at delta = 2e-05 in 60 rounds"
  )
  plan = fe.plan(_spec(), measure=False)
  assert plan.epsilon == pytest.approx(2.562, abs=1e-3)
  assert (plan.delta, plan.noise_on_mean) == (2e-5, 0.8 / 512)
  assert "<- this run" in str(plan)
  assert max(map(len, str(plan).splitlines())) <= 80


def test_users_who_only_validate_hide_nobody():
  task = fe.create_task("handwriting", num_users=20_500, selection_users=500)
  plan = fe.plan(dataclasses.replace(_spec(), task=task), measure=False)
  assert plan.ledger == fe.plan(_spec(), measure=False).ledger
  assert plan.ledger.participation.num_users == 20_000


def test_the_noise_on_the_mean_stays_where_rounds_get_fewer_users(monkeypatch):
  create, larger = ledger_lib.create_ledger, []

  def record(claim, noise, rounds, **options):
    if claim.num_users > 20_000:
      larger.append((claim, noise.multiplier))
    return create(claim, noise, rounds, **options)

  monkeypatch.setattr(plan_lib.ledger_lib, "create_ledger", record)
  spec = dataclasses.replace(
    _spec(),
    participation=fe.RandomAllocation(users_per_round=1_000, period=4),
    mechanism=fe.Gaussian(noise_multiplier=0.3),
  )
  fe.plan(spec, measure=False)
  shares = [claim.users_per_round / claim.num_users for claim, _ in larger]
  # A twentieth is asked for: five rounds of a block; some populations have six.
  assert min(shares) == pytest.approx(1 / 24)
  for claim, noise in larger:
    assert noise / claim.users_per_round == pytest.approx(0.3 / 1_000, rel=1e-3)


def test_a_plan_of_arrays_and_an_account_need_no_tensorflow():
  done = subprocess.run(
    [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=False
  )
  assert done.returncode == 0, done.stderr
  assert "Privacy of 3 rounds for 40 users" in done.stdout


@pytest.mark.slow
def test_a_plan_refuses_weights_that_the_run_would_refuse(tmp_path):
  path = tmp_path / "none.h5"
  images, labels = np.zeros([24, 8, 8, 1], np.uint8), np.arange(24) % 4
  source = fe.ArrayTask(
    images, labels, np.arange(24) // 3, test=(images, labels)
  )
  spec = fe.RunSpec(
    task=source,
    participation=fe.Poisson(users_per_round=4),
    pretrained_backbone=str(path),
  )
  with pytest.raises(errors.FieldError, match="pretrained_backbone must be a "):
    fe.plan(spec, measure=False, task=source.create())


def test_a_plan_measures_a_round():
  participation = fe.FixedSize(users_per_round=2)
  spec = dataclasses.replace(tiny_specs.create(), participation=participation)
  plan = fe.plan(spec)
  assert plan.epsilon == np.inf
  assert "measured on 2 of them" in " ".join(plan.lines)


_ROUNDS, _USERS, _COHORT = 12, 240, 20
_POISSON = fe.Poisson(users_per_round=_COHORT)
_GROUPS = fe.Poisson(users_per_round=_COHORT, users_per_client=4)
_FIXED = fe.FixedSize(users_per_round=_COHORT)
_PASSES = fe.MinSeparation(users_per_round=_COHORT)
_OFTEN = fe.MinSeparation(users_per_round=_COHORT, min_separation=3)
_BLOCKS = fe.CyclicPoisson(users_per_round=_COHORT)
_ALLOCATED = fe.RandomAllocation(users_per_round=_COHORT, period=6)
_BINS = fe.BallsInBins(users_per_round=_COHORT)
# Mechanism, its noise and options, participation, seed of a known schedule.
_CASES = [
  (fe.Gaussian, 4.0, {}, _POISSON, None),
  (fe.Gaussian, 0.2, {}, _POISSON, None),
  (fe.Gaussian, 4.0, {}, _POISSON, 7),
  (fe.Gaussian, 4.0, {}, _GROUPS, None),
  (fe.Gaussian, 4.0, {}, _FIXED, None),
  (fe.Gaussian, 4.0, {}, _FIXED, 7),
  (fe.Gaussian, 4.0, {}, _PASSES, None),
  (fe.Gaussian, 4.0, {}, _OFTEN, None),
  (fe.Gaussian, 4.0, {}, _ALLOCATED, None),
  (fe.Gaussian, 4.0, {}, _BINS, None),
  (fe.AdaptiveGaussian, 1.0, {}, _POISSON, None),
  (fe.AdaptiveGaussian, 1.0, {}, _PASSES, None),
  (fe.SecureGaussian, 4.0, {}, _POISSON, None),
  (fe.Tree, 4.0, {}, _PASSES, None),
  (fe.AdaptiveTree, 1.0, {"restart_every": 6}, _OFTEN, None),
  (fe.Blt, 4.0, {}, _PASSES, None),
  (fe.Banded, 4.0, {"num_bands": 3}, _OFTEN, None),
  (fe.Banded, 4.0, {"num_bands": 4}, _BLOCKS, None),
  (fe.Banded, 4.0, {"num_bands": 4}, _ALLOCATED, None),
  (fe.ClipOnly, 0.0, {}, _FIXED, None),
]
# Numbers of an update: of two networks for 28x28 pixels, and of ResNet-50.
_SIZES = (97_408, 453_632, 23_796_864)


@pytest.fixture(name="task", scope="module")
def _task():
  images, users = np.zeros([2 * _USERS, 4, 4, 1], np.uint8), np.arange(_USERS)
  labels = np.arange(2 * _USERS) % 4
  source = fe.ArrayTask(
    images, labels, np.repeat(users, 2), test=(images[:8], labels[:8])
  )
  return source, source.create()


@pytest.mark.parametrize(
  "case", _CASES, ids=[f"{c[0].__name__}-{c[3].name}-{c[4]}" for c in _CASES]
)
def test_plan_run_and_account_cost_the_same(case, task, tmp_path, monkeypatch):
  mechanism, noise, options, participation, seed = case
  source, task = task
  for size in _SIZES:
    monkeypatch.setattr(
      experiment, "_measure_backbone", lambda *_, size=size: (size, 8)
    )
    spec = fe.RunSpec(
      task=source,
      participation=participation,
      mechanism=mechanism(noise_multiplier=noise, **options),
      rounds=_ROUNDS,
      sampling_seed=seed,
      delta=1e-3,
    )
    resolved = experiment.resolve(spec, task)
    claim = resolved.participation
    # The chain's first line, the rounds and their users decide the account.
    planned = ledger_lib.Ledger.from_json(resolved.plan_ledger().to_json())
    run = dataclasses.replace(planned, history=()).with_runs(
      planned.noise, [1] * _ROUNDS
    )
    path = tmp_path / f"{size}.trace"
    traces.write(
      path, _USERS, [claim.sample(r, key=seed or 3) for r in range(_ROUNDS)]
    )
    with participation_trace.TraceReader(path) as trace:
      epsilon = run.tightest_epsilon(trace)
      observed = participation_check.observe(_USERS, trace)
    # See `fe.plan`, which tells other noise besides.
    assert resolved.predict_ledger().tightest_epsilon() == epsilon
    if seed:
      claim = claim.with_known_schedule(observed.max_participations)
    is_known = noise > 0 and resolved.mechanism.strategy is None
    assert (arithmetic.known_sum(run) is not None) == is_known
    told = planning.Plan(
      resolved.mechanism.config,
      claim,
      _ROUNDS,
      1e-3,
      num_parameters=size if is_known else None,
      workload=spec.workload,
    )
    assert told.account.tightest_epsilon() == epsilon
  if case is _CASES[2]:
    plan = fe.plan(spec, measure=False, task=task)
    assert (plan.ledger, plan.epsilon) == (resolved.predict_ledger(), epsilon)
