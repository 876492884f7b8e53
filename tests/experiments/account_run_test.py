"""Tests of the account of a run, from what it left in its directory."""

import dataclasses
import functools
import json
import shutil

import dp_accounting
import numpy as np
import pytest

from experiments import account_run
from experiments import run_claim
from tests.binaries import accounting
from tests.data import traces
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.aggregators import mechanism as mechanism_lib
from tff_fedemb.aggregators import registry as aggregators
from tff_fedemb.data import participation_trace
from tff_fedemb.data.participation import fixed_size
from tff_fedemb.data.participation import poisson
from tff_fedemb.privacy import arithmetic
from tff_fedemb.privacy import ledger as ledger_lib

_KEY = 2**127 + 5
# As a run records them; None is what was not given.
_TREE_FLAGS = {
  "program": "run_federated",
  "participation": "min_separation",
  "min_separation": None,
  "regroup_clients": True,
  "clients_per_round": 5,
  "users_per_client": 2,
  "aggregator": "tree",
  "clip_norm": 0.3,
  "noise_multiplier": 6.0,
  "restart_every": None,
  "restart_every_passes": None,
  "rounds": 12,
  "delta": 1e-3,
  "seed": 0,
  "sampling_seed": None,
}
_POISSON_FLAGS = _TREE_FLAGS | {
  "participation": "poisson",
  "regroup_clients": None,
  "aggregator": "gaussian",
  "noise_multiplier": 2.0,
}


@pytest.fixture(name="account")
def _account(tmp_path):
  return functools.partial(accounting.call, tmp_path)


def _write_run(
  directory, *, rounds=12, num_traced=None, key=_KEY, sample=None, **changes
):
  """Leaves what a run leaves, one with a tree by default; its ledger."""
  flags = _TREE_FLAGS | changes
  claim = run_claim.create_claim(flags, 100)
  (directory / "checkpoints").mkdir(parents=True)
  (directory / "flags.json").write_text(json.dumps(flags))
  if key is not None:
    path = directory / "checkpoints/sampling_key"
    path.write_text(f"{key:032x}\n")
  ledger = ledger_lib.Ledger(
    claim.participation,
    delta=claim.delta,
    accountants=None if claim.participation.is_sampled else ("rdp", "gaussian"),
    round_sum=arithmetic.RoundSum(0.3, flags["noise_multiplier"], 1_000),
  )
  if rounds:
    ledger = ledger.with_rounds(claim.event, rounds)
  (directory / "ledger.json").write_text(ledger.to_json())
  drawn_from = key if flags["sampling_seed"] is None else flags["sampling_seed"]
  sample = sample or functools.partial(
    claim.participation.sample, key=drawn_from
  )
  with participation_trace.TraceWriter(
    directory / "participation.trace", 100
  ) as writer:
    for number in range(rounds if num_traced is None else num_traced):
      writer.record(number, sample(number))
  return ledger


def _finish(directory, ledger, **changes):
  with participation_trace.TraceReader(
    directory / "participation.trace"
  ) as reader:
    privacy = ledger.report(reader).to_json()
  (directory / "summary.json").write_text(
    json.dumps({"privacy": privacy | changes})
  )


def test_a_finished_run(account, tmp_path):
  ledger = _write_run(tmp_path / "run")
  _finish(tmp_path / "run", ledger)
  process, values = account("epsilon", f"--run_dir={tmp_path / 'run'}")
  assert process.status == 0, process.errors
  summary = json.loads((tmp_path / "run" / "summary.json").read_text())
  assert {name: values[name] for name in summary["privacy"]} == (
    summary["privacy"] | {"epsilon": values["epsilon"]}
  )
  assert values["mechanism"] == "tree"
  words = " ".join(process.output.split())
  assert "The trace of the run does not refute this." in words
  (note,) = values["notes"]
  assert note.startswith("the draw of all 12 rounds was replayed from checkpo")
  _, by_rdp = account(
    "epsilon", f"--run_dir={tmp_path / 'run'}", "--accountant=rdp"
  )
  assert by_rdp["epsilon"] == values["epsilon_by_accountant"]["rdp"]


def test_a_killed_run(tmp_path):
  ledger = _write_run(tmp_path / "run", num_traced=13)
  run = account_run.recompute(tmp_path / "run")
  assert run.report.rounds == 12
  assert run.report.epsilon == ledger.report().epsilon
  assert any("not finished: 12 rounds" in note for note in run.notes)
  assert any("the trace has 1 round more" in note for note in run.notes)


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"epsilon": 0.5}, "found epsilon 0.5 there and"),
    ({"epsilon_by_accountant": {"rdp": 0.5, "gaussian": 0.4}}, "by rdp"),
    ({"delta": 0.1}, "found delta 0.1 there"),
    ({"rounds": 7}, "found rounds 7 there and 12 by the ledger"),
  ],
)
def test_a_summary_that_claims_something_else(
  account, tmp_path, change, message
):
  ledger = _write_run(tmp_path / "run")
  _finish(tmp_path / "run", ledger, **change)
  process, values = account("epsilon", f"--run_dir={tmp_path / 'run'}")
  accounting.check_refused(process, values, message)
  assert "--run_dir must hold a summary.json that agrees" in process.errors


@pytest.mark.parametrize(
  ("num_traced", "message"),
  [
    (15, "trace of the 12 rounds of its"),
    (11, "trace must hold the 12 rounds"),
  ],
)
def test_a_finished_run_of_another_number_of_rounds(
  tmp_path, num_traced, message
):
  ledger = _write_run(tmp_path / "run", num_traced=num_traced)
  privacy = ledger.report().to_json()
  path = tmp_path / "run" / "summary.json"
  path.write_text(json.dumps({"privacy": privacy}))
  with pytest.raises(ValueError, match=message):
    account_run.recompute(tmp_path / "run")


@pytest.mark.parametrize(
  "missing", ["ledger.json", "participation.trace", "flags.json"]
)
def test_files_that_are_not_there(tmp_path, missing):
  _write_run(tmp_path / "run")
  (tmp_path / "run" / missing).unlink()
  with pytest.raises(ValueError, match=missing):
    account_run.recompute(tmp_path / "run")


@pytest.mark.parametrize(
  ("name", "text"),
  [
    ("ledger.json", "{"),
    ("ledger.json", "[]"),
    ("ledger.json", '{"format": "another"}'),
    ("flags.json", "{}"),
    ("flags.json", "[]"),
    ("summary.json", "{}"),
    ("summary.json", '{"privacy": {"epsilon": 1}}'),
  ],
)
def test_files_that_are_damaged(tmp_path, name, text):
  _write_run(tmp_path / "run")
  (tmp_path / "run" / name).write_text(text)
  with pytest.raises(
    ValueError, match=f"run_dir must hold whole files of a run, .*{name}"
  ):
    account_run.recompute(tmp_path / "run")


def _extrapolate(account, run_dir):
  """To a hundred thousand users in cohorts ten times as large."""
  process, values = account(
    "extrapolate",
    f"--run_dir={run_dir}",
    "--extrapolated_num_users=100000",
    "--cohort_factor=10",
  )
  assert process.status == 0, process.errors
  return process, values


@pytest.mark.parametrize("sampling_seed", [None, 4])
def test_extrapolation_is_to_users_who_are_drawn_in_secret(
  account, tmp_path, sampling_seed
):
  flags = _POISSON_FLAGS | {"sampling_seed": sampling_seed}
  _write_run(tmp_path / "run", **flags)
  process, values = _extrapolate(account, tmp_path / "run")
  assert not values["participation"]["known_schedule"]
  assert "amplification by sampling, from a secret key" in process.output
  assert values["user_level"]["epsilon"] < 0.1


def test_extrapolation_of_a_run(account, tmp_path):
  _write_run(tmp_path / "run")
  _, values = _extrapolate(account, tmp_path / "run")
  assert values["noise_multiplier"] == 60
  assert values["rounds"] == 12
  assert values["participation"]["min_separation"] == 1_000
  # One participation: the twelve rounds are trees of 8 and 4 leaves.
  assert values["zcdp"] == pytest.approx(4 * (2 / 60) ** 2 / 2)


def test_pld_alone_is_refused_for_a_run_where_it_would_take_minutes(tmp_path):
  _write_run(tmp_path / "run", **_POISSON_FLAGS | {"noise_multiplier": 0.02})
  with pytest.raises(ValueError, match="accountant must be rdp where"):
    account_run.recompute(tmp_path / "run", ("pld",))


def _edit(path, **changes):
  path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_ledger_of_more_noise_than_the_run_had(account, tmp_path):
  """No summary is there yet: the settings alone can tell."""
  ledger = _write_run(
    tmp_path / "run", **_POISSON_FLAGS | {"noise_multiplier": 0.02}
  )
  path = tmp_path / "run" / "ledger.json"
  path.write_text(path.read_text().replace("0.02", "20.0"))
  forged = ledger_lib.Ledger.from_json(path.read_text())
  assert forged.epsilon() < 0.1 < 1_000 < ledger.epsilon()
  for command in ("epsilon", "extrapolate"):
    process, values = account(command, f"--run_dir={tmp_path / 'run'}")
    accounting.check_refused(
      process, values, "noise multiplier 20.0 there and 0.02 by the settings"
    )
    assert (
      "--run_dir must hold a ledger.json of the run whose" in process.errors
    )


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"participation": "fixed_size"}, "kind of users 'poisson' there and 'fix"),
    ({"users_per_client": 1}, "users_per_round of users 10 there and 5"),
    (
      {"clients_per_round": 2, "users_per_client": 5},
      "users_per_client of users 2 there and 5 by the settings",
    ),
    ({"delta": None}, "delta 0.001 there and 0.006 by the settings"),
    ({"aggregator": "tree"}, "mechanism 'gaussian' there and 'tree' by the"),
    ({"aggregator": "none", "noise_multiplier": 0.0}, "mechanism 'gaussian'"),
    ({"clip_norm": 3.0}, "clip norm 0.3 there and 3.0 by the settings"),
    ({"clip_norm": None}, "clip norm 0.3 there and None by the settings"),
    ({"rounds": 11}, "number of rounds 12 there and 11 by the settings"),
    (
      {"sampling_seed": 3},
      "known_schedule of users False there and True by the settings",
    ),
  ],
)
def test_a_ledger_of_other_settings(tmp_path, changes, message):
  _write_run(tmp_path / "run", **_POISSON_FLAGS)
  _edit(tmp_path / "run" / "flags.json", **changes)
  with pytest.raises(errors.FieldError, match=message):
    account_run.recompute(tmp_path / "run")


@pytest.mark.parametrize(
  "changes",
  [
    {},
    {"aggregator": "tree", "restart_every_passes": 1},
    {"aggregator": "tree", "restart_every": 5},
    {"aggregator": "adaptive_tree", "restart_every": 6, "restart_warmup": 3},
    {"aggregator": "blt", "num_buffers": None},
    {"aggregator": "banded", "num_bands": 3},
    {"aggregator": "gaussian", "min_separation": 4},
    _POISSON_FLAGS,
    _POISSON_FLAGS | {"aggregator": "adaptive_gaussian"},
    _POISSON_FLAGS | {"aggregator": "secure_gaussian"},
    _POISSON_FLAGS | {"participation": "fixed_size", "delta": None},
    _POISSON_FLAGS | {"sampling_seed": 8},
    {"aggregator": "clip_only", "noise_multiplier": 0.0},
  ],
)
def test_the_ledger_of_the_settings_themselves(tmp_path, changes):
  """The mechanisms that a run is made of account as its settings do."""
  ledger = _write_run(tmp_path / "run", **changes)
  assert account_run.read_ledger(tmp_path / "run") == ledger
  run = account_run.recompute(tmp_path / "run")
  assert run.report.rounds == 12
  flags = _TREE_FLAGS | changes
  config_class = aggregators.AGGREGATORS[flags["aggregator"]]
  given = {spec.name for spec in config.specs(config_class)} & flags.keys()
  options = {name: flags[name] for name in given if flags[name] is not None}
  if flags["restart_every_passes"]:
    options["restart_every"] = 10 * flags["restart_every_passes"]
  options |= {"clients_per_round": 500 * flags["clients_per_round"]}
  claim = ledger.participation
  schedule = (12, claim.min_separation or 1, claim.max_participations)
  mechanism = config_class(**options).create(mechanism_lib.Schedule(*schedule))
  assert {event for event, _ in ledger.history} == {mechanism.round_event}


@pytest.mark.slow
def test_rounds_that_ran_again(tmp_path):
  once = _write_run(tmp_path / "run", **_POISSON_FLAGS)
  event, _ = once.history[0]
  empty = dataclasses.replace(once, history=())
  again = empty.with_rounds(event, 10).with_rounds(event, 2, times=2)
  (tmp_path / "run" / "ledger.json").write_text(again.to_json())
  run = account_run.recompute(tmp_path / "run")
  assert any("2 of 12 rounds ran again" in text for text in run.report.warnings)
  assert run.report.epsilon > once.report().epsilon


def test_a_run_that_has_not_done_a_round(tmp_path):
  _write_run(tmp_path / "run", rounds=0)
  with pytest.raises(errors.FieldError, match="run of at least one round"):
    account_run.recompute(tmp_path / "run")


def test_a_centralized_run(tmp_path):
  settings = {"program": "run_centralized", "users_per_round": 30, "rounds": 3}
  claim = run_claim.create_claim(settings | {"sampling_seed": None}, 100)
  assert claim.participation == fixed_size.FixedSize(
    100, 30, users_per_client=30
  )
  assert claim.event == dp_accounting.NonPrivateDpEvent()


def test_a_draw_from_another_key(account, tmp_path):
  _write_run(tmp_path / "run", **_POISSON_FLAGS)
  path = tmp_path / "run/checkpoints/sampling_key"
  path.write_text(f"{_KEY + 1:032x}")
  process, values = account("epsilon", f"--run_dir={tmp_path / 'run'}")
  accounting.check_refused(process, values, "poisson draws from the run's key")


@pytest.mark.parametrize("sampling_seed", [None, 9])
def test_one_user_who_was_moved(tmp_path, sampling_seed):
  """No test of the trace alone would see it."""

  def sample(number):
    key = _KEY if sampling_seed is None else sampling_seed
    claim = poisson.Poisson(100, 10, users_per_client=2)
    clients = claim.sample(number, key=key)
    if number == 7:
      moved, clients[0] = clients[0][:1], clients[0][1:]
      clients[1] = np.append(clients[1], moved)
      clients = [client for client in clients if client.size]
    return clients

  _write_run(
    tmp_path / "run",
    sample=sample,
    **_POISSON_FLAGS | {"sampling_seed": sampling_seed},
  )
  with pytest.raises(errors.DataError, match="round 7 of the trace has"):
    account_run.recompute(tmp_path / "run")


def test_a_copy_without_its_checkpoints(tmp_path):
  _write_run(tmp_path / "run", **_POISSON_FLAGS)
  shutil.rmtree(tmp_path / "run" / "checkpoints")
  run = account_run.recompute(tmp_path / "run")
  assert any("was not replayed" in note for note in run.notes)


@pytest.mark.parametrize("claimed", [0.5, 2.0])
def test_a_run_of_an_earlier_version(tmp_path, claimed):
  """Its users came from --seed: read without amplification, never with it."""
  directory = tmp_path / "run"
  ledger = _write_run(
    directory, key=None, **_POISSON_FLAGS | {"sampling_seed": 1}
  )
  claim = ledger.participation
  traces.write_first_version(
    directory / "participation.trace",
    100,
    [claim.sample(number, key=1) for number in range(12)],
  )
  settings = json.loads((directory / "flags.json").read_text())
  del settings["sampling_seed"]
  (directory / "flags.json").write_text(json.dumps(settings))
  values = json.loads(ledger.to_json())
  del values["participation"]["known_schedule"]
  del values["round_sum"]
  values |= {"version": 1, "accountants": ["rdp", "pld"]}
  (directory / "ledger.json").write_text(json.dumps(values))
  _finish(directory, ledger, epsilon=claimed)
  summary = json.loads((directory / "summary.json").read_text())
  for name in ("amplification", "epsilon_with_secret_sampling"):
    del summary["privacy"][name]
  (directory / "summary.json").write_text(json.dumps(summary))
  run = account_run.recompute(directory)
  assert run.report.amplification.startswith("none: who is drawn when is taken")
  assert run.report.epsilon > 4 * run.report.epsilon_with_secret_sampling
  assert any(f"whose epsilon {claimed:.4g} assumed" in n for n in run.notes)
  # 12 rounds; beyond 5.68 less 2 / 2 there is 1.43e-6 of a normal distribution.
  (warning,) = (w for w in run.report.warnings if "did not have" in w)
  assert f"with a probability of up to {12 * 1.43e-6:.2g}, where" in warning
  # Nor does it help to say that its seed was a key.
  _edit(directory / "flags.json", sampling_seed=None)
  with pytest.raises(errors.FieldError, match="known_schedule of users True"):
    account_run.recompute(directory)
