"""Tests of the account of a run, from what it left in its directory."""

import functools
import json
import shutil

import numpy as np
import pytest

from tests.binaries import accounting
from tests.program import chains
from tests.run import specs
from tff_fedemb import errors
from tff_fedemb.data import participation_trace
from tff_fedemb.participation import min_separation
from tff_fedemb.participation import poisson
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.program import chain as chain_lib
from tff_fedemb.run import account as account_run
from tff_fedemb.strategies import strategy as strategy_lib
from tff_fedemb.strategies import tree

_KEY = 2**127 + 5
_TREE = min_separation.MinSeparation(100, 10, users_per_client=2)
_POISSON = poisson.Poisson(100, 10, users_per_client=2)


@pytest.fixture(name="account")
def _account(tmp_path):
  return functools.partial(accounting.call, tmp_path)


def _write_run(
  directory,
  claim=_TREE,
  *,
  noise_multiplier=None,
  runs=(1,) * 12,
  num_traced=None,
  sampling_seed=None,
  sample=None,
):
  """Leaves what a run leaves, one with a tree by default; its ledger."""
  (directory / "checkpoints").mkdir(parents=True)
  (directory / "checkpoints/sampling_key").write_text(f"{_KEY:032x}\n")
  key, strategy = _KEY, tree.TreeStrategy()
  if sampling_seed is not None:
    key, claim = sampling_seed, claim.with_known_schedule()
  if claim.is_sampled or sampling_seed is not None:
    strategy = None
  noise_multiplier = noise_multiplier or (6.0 if strategy else 2.0)
  specs.write(
    directory, mechanism={"kind": "tree"}, sampling_seed=sampling_seed
  )
  planned = ledger_lib.Ledger(
    claim,
    delta=1e-3,
    round_sum=composition.RoundSum(0.3, noise_multiplier, 1_000),
  ).with_rounds(strategy_lib.round_event(noise_multiplier, strategy), 12)
  sample = sample or functools.partial(claim.sample, key=key)
  with participation_trace.TraceWriter(
    directory / "participation.trace", 100
  ) as writer:
    digests = [
      writer.record(number, sample(number))
      for number in range(len(runs) if num_traced is None else num_traced)
    ]
  digests += ["not traced"] * len(runs)
  return chains.write(
    directory, planned, runs, lambda number: digests[number - 1]
  )


def _finish(directory, ledger, **changes):
  with participation_trace.TraceReader(
    directory / "participation.trace"
  ) as reader:
    privacy = ledger.report(reader).to_json()
  summary = {
    "privacy": privacy | changes,
    "chain": chain_lib.Chain(directory).head,
    "rounds": ledger.rounds,
    "num_private_parameters": 1_000,
  }
  (directory / "summary.json").write_text(json.dumps(summary))


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
  ("name", "text"),
  [
    ("rounds.jsonl", "[]\n"),
    ("rounds.jsonl", '{"format": "another", "previous": null}\n'),
    ("participation.trace", None),
    ("run.json", None),
    ("run.json", "["),
    ("summary.json", "["),
    ("summary.json", '{"privacy": {"epsilon": 1}}'),
  ],
)
def test_files_that_are_missing_or_damaged(tmp_path, name, text):
  _write_run(tmp_path / "run")
  path = tmp_path / "run" / name
  path.unlink() if text is None else path.write_text(text)
  with pytest.raises(ValueError, match=name):
    account_run.recompute(tmp_path / "run")


def test_a_finished_run_has_no_round_more_in_its_trace(tmp_path):
  _finish(tmp_path / "run", _write_run(tmp_path / "run", num_traced=13))
  with pytest.raises(ValueError, match="13 rounds there and 12 in the chain"):
    account_run.recompute(tmp_path / "run")


@pytest.mark.parametrize(
  ("claim", "sampling_seed"), [(_TREE, None), (_POISSON, None), (_POISSON, 4)]
)
def test_extrapolation_of_a_run(account, tmp_path, claim, sampling_seed):
  """To a hundred thousand users in cohorts ten times as large."""
  _write_run(tmp_path / "run", claim, sampling_seed=sampling_seed)
  process, values = account(
    "extrapolate",
    f"--run_dir={tmp_path / 'run'}",
    "--extrapolated_num_users=100000",
    "--cohort_factor=10",
  )
  assert process.status == 0, process.errors
  if claim is _TREE:
    assert values["noise_multiplier"] == 60
    assert values["rounds"] == 12
    assert values["participation"]["min_separation"] == 1_000
    # One participation: the twelve rounds are trees of 8 and 4 leaves.
    assert values["zcdp"] == pytest.approx(4 * (2 / 60) ** 2 / 2)
  else:
    # These users are drawn in secret, whatever was known of the run's.
    assert not values["participation"]["known_schedule"]
    words = " ".join(process.output.split())
    assert "amplification by sampling, from a secret key" in words
    assert values["user_level"]["epsilon"] < 0.1


def test_pld_alone_is_refused_for_a_run_where_it_would_take_minutes(tmp_path):
  _write_run(tmp_path / "run", _POISSON, noise_multiplier=0.02)
  with pytest.raises(ValueError, match="accountant must be rdp where"):
    account_run.recompute(tmp_path / "run", ("pld",))


def test_a_run_that_has_not_done_a_round(tmp_path):
  _write_run(tmp_path / "run", runs=())
  with pytest.raises(errors.FieldError, match="run of at least one round"):
    account_run.recompute(tmp_path / "run")


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
    tmp_path / "run", _POISSON, sample=sample, sampling_seed=sampling_seed
  )
  with pytest.raises(errors.DataError, match="round 7 of the trace has"):
    account_run.recompute(tmp_path / "run")


def test_a_copy_without_its_checkpoints(tmp_path):
  _write_run(tmp_path / "run", _POISSON)
  shutil.rmtree(tmp_path / "run" / "checkpoints")
  run = account_run.recompute(tmp_path / "run")
  assert any("was not replayed" in note for note in run.notes)
