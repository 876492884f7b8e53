"""Tests of privacy budgets that runs share."""

from concurrent import futures
import dataclasses
import json

import dp_accounting
import pytest

from tests.accounting import gaussian
from tff_fedemb import errors
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import epsilon as epsilon_lib
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.accounting import pld_accountant
from tff_fedemb.participation import balls_in_bins
from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import min_separation
from tff_fedemb.participation import poisson
from tff_fedemb.participation import random_allocation
from tff_fedemb.planning import budget
from tff_fedemb.planning import budget_composition

_DELTA = 1e-6
_POISSON = poisson.Poisson(10_000, 100.0)
# Everybody is in one of 100 rounds.
_PASSES = min_separation.MinSeparation(10_000, 100, min_separation=100)
_USERS = {"run_dir": "runs/one", "users": "digest of the users"}


def _ledger(noise_multiplier=6.0, rounds=10, participation=_PASSES, **fields):
  return ledger_lib.Ledger(participation, delta=0.1, **fields).with_rounds(
    composition.Noise(noise_multiplier), rounds
  )


@pytest.fixture(name="path")
def _path(tmp_path):
  path = tmp_path / "budget.json"
  values = {"epsilon": 1.5, "delta": _DELTA, "num_users": 10_000}
  path.write_text(json.dumps(values))
  return path


def test_runs_compose_as_one_accountant_does():
  accountant = dp_accounting.pld.PLDAccountant()
  for noise_multiplier, rounds in ((1.0, 10), (0.8, 5)):
    event = dp_accounting.GaussianDpEvent(noise_multiplier)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(0.01, event), rounds)
  runs = [_ledger(1.0, 10, _POISSON), _ledger(0.8, 5, _POISSON)]
  found = budget_composition.compose(runs, _DELTA)
  left = _DELTA - pld_accountant.lost_delta([10, 5])
  assert found == pytest.approx(accountant.get_epsilon(left), rel=1e-9)
  assert budget_composition.compose([], _DELTA) == 0.0


def test_a_run_costs_what_it_tells_by_itself():
  # Accountants that a participation has beside its own count, if runs had them.
  ledger = _ledger(
    1.0, 4, fixed_size.FixedSize(1_000, 100), accountants=("rdp", "pld")
  )
  ledger = dataclasses.replace(ledger, delta=1e-4)
  found = budget_composition.compose([ledger], 1e-4)
  report = ledger.report()
  assert report.accountant == "pld"
  assert found == pytest.approx(report.epsilon, rel=1e-9)


def test_runs_without_sampling_are_one_gaussian_mechanism():
  # Two runs, each user at most twice and once in them: sums of 1 / z ** 2.
  assert budget_composition.compose(
    [_ledger(4.0, 200), _ledger(3.0, 100)], _DELTA
  ) == pytest.approx(gaussian.exact_epsilon([4.0, 4.0, 3.0], _DELTA))


def test_arithmetic_of_all_runs_counts():
  round_sum = composition.RoundSum(1.0, 1.0, 1000)
  whole = _ledger(rounds=100, round_sum=round_sum)
  exact = budget_composition.compose([_ledger(rounds=100)] * 2, _DELTA)
  assert exact < budget_composition.compose([whole] * 2, _DELTA) < exact * 1.001
  double = dataclasses.replace(whole, delta=_DELTA).with_rounds(
    composition.Noise(6.0), 100
  )
  assert budget_composition.compose([whole] * 2, _DELTA) == pytest.approx(
    double.tightest_epsilon(), rel=1e-6
  )


@pytest.mark.parametrize(
  "other",
  [
    # Another relation; no accountant in common.
    fixed_size.FixedSize(10_000, 100),
    balls_in_bins.BallsInBins(10_000, 100),
  ],
)
def test_what_does_not_compose_is_refused(other):
  ledgers = [_ledger(participation=each) for each in (_POISSON, other)]
  with pytest.raises(errors.FieldError, match="an accountant in common"):
    budget_composition.compose(ledgers, _DELTA)


def test_a_run_is_charged_once_and_settled(path):
  spent = budget.charge(path, _ledger(), run_id="1", **_USERS).spent
  assert spent == pytest.approx(budget_composition.compose([_ledger()], _DELTA))
  # It goes on, and one of its rounds runs again.
  again = _ledger(rounds=9).with_rounds(composition.Noise(6.0), times=2)
  more = budget.charge(path, again, run_id="1", **_USERS)
  assert len(more.charges) == 1
  assert more.spent > spent
  done = budget.charge(
    path, _ledger(rounds=500), run_id="1", is_finished=True, **_USERS
  )
  # Spending cannot be taken back, and is told.
  assert done.spent > done.epsilon
  assert budget.read(path) == done
  assert "500 rounds" in done.to_text()
  with pytest.raises(errors.FieldError, match="have enough left"):
    budget.check(path, _ledger(rounds=1))


def test_who_would_overspend_is_refused_and_nothing_changes(path):
  budget.charge(path, _ledger(), run_id="1", **_USERS)
  before = path.read_bytes()
  with pytest.raises(
    errors.FieldError,
    match=r"privacy_budget must have enough left for the run, with which all"
    r" runs would cost epsilon .* found 0\.\d+ of 1\.5 spent",
  ):
    budget.charge(path, _ledger(0.5, 50), run_id="2", **_USERS)
  for ledger, users, message in (
    (
      _ledger(participation=min_separation.MinSeparation(9_999, 100)),
      *("digest", "9,999"),
    ),
    (_ledger(), "others", "one that runs on other users were charged to"),
  ):
    with pytest.raises(errors.FieldError, match=message):
      budget.charge(path, ledger, run_id="2", run_dir="", users=users)
  assert path.read_bytes() == before


def test_nothing_lowers_what_a_finished_run_cost(path):
  lines = [[f"{number:064}"] for number in range(10)]
  finished = {"lines": lines, "is_finished": True, **_USERS}
  spent = budget.charge(path, _ledger(), run_id="1", **finished).spent
  # It ends once more, and it goes on though it is done.
  budget.charge(path, _ledger(), run_id="1", **finished)
  again = budget.charge(path, _ledger(), run_id="1", lines=lines, **_USERS)
  assert (again.spent, len(again.charges)) == (spent, 1)
  # A part of it cannot take its place, and adds nothing.
  part = budget.charge(
    path, _ledger(rounds=6), run_id="1", lines=lines[:6], **_USERS
  )
  assert (part.spent, len(part.charges)) == (spent, 2)
  # Nobody knows what rounds without a line are.
  for known in ([], lines[:6]):
    more = budget.charge(
      path,
      _ledger(rounds=9),
      run_id="1",
      lines=known,
      is_finished=True,
      **_USERS,
    )
    assert more.spent > spent
  assert "a copy of the run above" in more.to_text()


def test_a_file_of_the_first_version_is_read(path):
  """Its charges have no lines: another of the same run may be of a copy."""
  spent = budget.charge(
    path, _ledger(), run_id="1", is_finished=True, **_USERS
  ).spent
  values = json.loads(path.read_text())
  values["format"][1] = 1
  del values["charges"][0]["lines"]
  path.write_text(json.dumps(values))
  assert budget.read(path).spent == spent
  after = budget.charge(path, _ledger(), run_id="1", **_USERS)
  assert after.spent == pytest.approx(
    budget_composition.compose([_ledger()] * 2, _DELTA)
  )
  values["format"][1] = 3
  path.write_text(json.dumps(values))
  with pytest.raises(errors.FieldError, match="a file of another version"):
    budget.read(path)


def test_runs_have_an_accountant_in_common_that_is_asked_by_name():
  """RDP for random allocation with Poisson; the rounds are those of RDP."""
  claims = [_POISSON, random_allocation.RandomAllocation(10_000, 1_000)]
  ledgers = [_ledger(2.0, 20, each) for each in claims]
  accountant = epsilon_lib.RdpAccountant(claims[0].neighboring_relation)
  for each in ledgers:
    for event, count in each.composed_events():
      accountant.compose(event, count)
  assert budget_composition.compose(ledgers, _DELTA) == pytest.approx(
    accountant.get_epsilon(_DELTA)
  )


@pytest.mark.slow
def test_twenty_programs_at_once_never_overspend(path):
  with futures.ProcessPoolExecutor(4) as pool:
    charged = sum(pool.map(_start, [path] * 20, range(20)))
  found = budget.read(path)
  assert len(found.charges) == charged
  # As many as fit, no fewer.
  assert found.spent <= found.epsilon
  assert (
    budget_composition.compose([_ledger(rounds=40)] * (charged + 1), _DELTA)
    > found.epsilon
  )
  assert found.spent == pytest.approx(
    budget_composition.compose([_ledger(rounds=100 * charged)], _DELTA),
    rel=1e-9,
  )


def _start(path, number):
  try:
    budget.charge(path, _ledger(rounds=40), run_id=str(number), **_USERS)
  except errors.FieldError:
    return False
  return True


@pytest.mark.parametrize(
  "text", ["{", "[]", '{"epsilon": 0, "delta": 1e-6, "num_users": 1}', "{}"]
)
def test_a_damaged_file_is_refused(path, text):
  path.write_text(text)
  with pytest.raises(errors.FieldError, match="be a privacy budget, found"):
    budget.read(path)
  path.unlink()
  with pytest.raises(errors.FieldError, match="be a JSON file like"):
    budget.charge(path, _ledger(), run_id="1", **_USERS)
  assert not list(path.parent.iterdir())


def test_a_tiny_delta_is_by_rdp():
  runs = [_ledger(1.0, 10, _POISSON), _ledger(0.8, 5, _POISSON)]
  accountant = epsilon_lib.RdpAccountant(_POISSON.neighboring_relation)
  for noise_multiplier, rounds in ((1.0, 10), (0.8, 5)):
    event = dp_accounting.GaussianDpEvent(noise_multiplier)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(0.01, event), rounds)
  # PLD had infinity.
  found = budget_composition.compose(runs, 1e-16)
  assert found == pytest.approx(accountant.get_epsilon(1e-16), rel=1e-9)
  with pytest.raises(errors.FieldError, match=r"delta must be in \[1e-250, 1"):
    budget_composition.compose(runs, 1e-300)
