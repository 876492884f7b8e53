"""Tests of training under a deployment: abandoned rounds, kills, figures."""

import json
import math
import os

import numpy as np
import pandas as pd
import pytest

from tests.records import sums
from tests.rounds import loops
from tff_fedemb import errors
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.deployment import deployment
from tff_fedemb.deployment import simulation
from tff_fedemb.mechanisms import tree_strategy
from tff_fedemb.participation import check_ins
from tff_fedemb.participation import participation_check
from tff_fedemb.participation import participation_trace
from tff_fedemb.records import chain as chain_lib
from tff_fedemb.records import run_directory
from tff_fedemb.spec import deployment as deployment_run

_NUM_USERS = 200
_GOAL = 6
_ROUNDS = 12
_CLAIM = check_ins.CheckIns(
  _NUM_USERS, _GOAL, min_separation=4, max_participations=3
)
_NOISE = composition.Noise(2.0, tree_strategy.TreeStrategy())
# About every third round has too few reports by the deadline.
_DEPLOYMENT = {
  "description": "Of a test.",
  "availability": {
    "time_zones": {0: 1},
    "base": 0.5,
    "amplitude": 0.2,
    "session_minutes": 3,
  },
  "compute": {"milliseconds_per_example": 0},
  "network": {"download_mbps": 1, "download_sigma": 0.5},
  "dropout_rate": 0.1,
  "server": {
    "over_selection": 1.3,
    "deadline_minutes": 1.2,
    "min_report_share": 0.8,
  },
}
_WORK = simulation.WorkOfRound(bytes_down=5_000_000, bytes_up=8, examples=0)


def _create_simulation(seed=3):
  return simulation.Simulation(
    deployment.parse(_DEPLOYMENT),
    _NUM_USERS,
    seed,
    _WORK,
    report_goal=_GOAL,
    min_separation=_CLAIM.min_separation,
    max_participations=_CLAIM.max_participations,
  )


def _train(directory, runtime, draw=None):
  """Weights, ledger, rounds."""
  rounds = deployment_run.DeployedRounds(
    _create_simulation(), directory / "deployment.csv"
  )
  chain = chain_lib.Chain(directory)
  chain.begin(
    ledger_lib.Ledger(_CLAIM, delta=1e-3).with_rounds(_NOISE, _ROUNDS)
  )
  with participation_trace.TraceWriter(
    directory / "trace", _NUM_USERS
  ) as trace:
    loop = loops.create(
      directory,
      runtime,
      chain=chain,
      trace=trace,
      draw=draw or rounds.draw,
      config={"rounds": _ROUNDS, "checkpoint_every": 3},
    )
    loop.start(lambda weights: weights + 1.0)
    loop.run()
  return loop.weights, chain.ledger, rounds


@pytest.fixture(name="whole", scope="module")
def _whole(tmp_path_factory):
  directory = tmp_path_factory.mktemp("whole")
  return *_train(directory, sums.Sums()), directory


def _read_rows(directory):
  return pd.read_csv(directory / "deployment.csv")


def _observe(directory):
  with participation_trace.TraceReader(directory / "trace") as trace:
    return participation_check.observe(_NUM_USERS, trace)


def test_every_round_has_a_row(whole):
  rows = _read_rows(whole[-1])
  released = rows[rows.abandoned == 0]
  assert list(released.round_num) == list(range(_ROUNDS))
  assert len(rows) - _ROUNDS >= 2
  sums_of_rows = rows[["dropped", "interrupted", "late", "aborted", "reported"]]
  assert list(sums_of_rows.sum(axis=1)) == list(rows.selected)
  minimum = math.ceil(0.8 * _GOAL)
  assert list(rows.abandoned == 0) == list(rows.reported >= minimum)
  assert rows.start_hours.is_monotonic_increasing
  assert (rows.end_hours > rows.start_hours).all()


def test_abandoned_rounds_release_and_cost_nothing(whole, tmp_path):
  """As a run that has never had them, on the same cohorts."""
  weights, ledger, _, directory = whole
  rounds = deployment_run.DeployedRounds(_create_simulation(), os.devnull)
  cohorts = [rounds.draw(number) for number in range(_ROUNDS)]
  plain = _train(tmp_path, sums.Sums(), draw=cohorts.__getitem__)
  assert plain[0] == weights
  assert plain[1] == ledger
  assert ledger.history == (composition.Rounds(count=_ROUNDS, noise=_NOISE),)
  # Nor does it use up one of the rounds that a user may be in.
  rows = _read_rows(directory)
  observed = _observe(directory)
  assert observed.num_rounds == _ROUNDS
  reported = rows[rows.abandoned == 0].reported
  assert observed.min_users_per_round == reported.min()
  assert observed.max_users_per_round == reported.max()


def test_figures_are_those_of_the_rows(whole):
  _, ledger, rounds, directory = whole
  rows, observed = _read_rows(directory), _observe(directory)
  with participation_trace.TraceReader(directory / "trace") as trace:
    found = rounds.summarize(ledger, trace)
  days = rows.end_hours.max() / 24
  assert found["days"] == pytest.approx(days)
  assert found["rounds_a_day"] == pytest.approx(_ROUNDS / days)
  assert found["rounds_abandoned"] == rows.abandoned.sum()
  for shares in ("session_shapes", "participation_by_device_class"):
    assert sum(found[shares].values()) == pytest.approx(1)
  with participation_trace.TraceReader(directory / "trace") as trace:
    reached = set(np.concatenate([recorded.slots for recorded in trace]))
  assert found["devices_never_reached"] == _NUM_USERS - len(reached)
  measured = found["measured"]
  assert measured["note"].startswith("measured after the fact: no part")
  assert measured["max_participations"] == observed.max_participations
  assert measured["epsilon"] <= ledger.report().epsilon
  json.dumps(found, allow_nan=False)


def test_a_run_is_played_again_from_its_file(whole, tmp_path):
  rounds, directory = whole[-2:]
  values = deployment_run.describe(rounds.simulation)
  read = json.loads(json.dumps(values))
  again = deployment_run.DeployedRounds(
    deployment_run.read_simulation(read), tmp_path / "again.csv"
  )
  again.play(_ROUNDS)
  again.play(3)  # Which it has had.
  expected = (directory / "deployment.csv").read_bytes()
  assert (tmp_path / "again.csv").read_bytes() == expected
  with pytest.raises(ValueError, match="must not go back, found 3"):
    again.draw(3)
  del read["seed"]
  with pytest.raises(errors.FieldError, match=r"whole files .*json: 'seed'"):
    deployment_run.read_simulation(read)


def test_a_run_does_not_go_on_under_another_deployment(tmp_path):
  directory = run_directory.RunDirectory(tmp_path, {})
  for seed in (4, 4, 3):
    simulated = _create_simulation(seed)
    if seed == 3:
      with pytest.raises(errors.FieldError, match=r"seed=4 \(now 3\)"):
        deployment_run.open_rounds(simulated, directory)
    else:
      deployment_run.open_rounds(simulated, directory)
