"""Tests that a release is refused unless it is as its run left it."""

import shutil

import pytest

from tests.spec import small_runs
from tff_fedemb.records import chain as chain_lib
from tff_fedemb.records import release
from tff_fedemb.report import account as account_run

_SUMMARY = "summary.json"


@pytest.fixture(name="built", scope="module")
def _built(tmp_path_factory):
  """A finished run and files of another one, to be copied."""
  directory = tmp_path_factory.mktemp("runs")
  run, other = (
    small_runs.SmallRun(directory / name, correlated=False)
    for name in ("run", small_runs.OTHER)
  )
  run.train()
  shutil.copytree(run.path / "release", other.path / "release")
  other.edit(small_runs.CARD, training__chain="00")
  for name in (small_runs.WEIGHTS, small_runs.NETWORK, small_runs.REPORT):
    other.append(name, b"other")
  return directory


@pytest.fixture(name="run")
def _run(built, tmp_path):
  """A copy of the finished run, to be forged."""
  shutil.copytree(built, tmp_path / "runs")
  return small_runs.SmallRun(tmp_path / "runs/run", correlated=False)


def _record(run, *, also_in_summary=False):
  """Records the files in release/, as a run does at its end."""
  chain = chain_lib.Chain(run.path)
  chain.record_given_away(release.digest_files(run.path))
  if also_in_summary:
    run.edit(_SUMMARY, chain=chain.head)


def _forge_card(run, **changes):
  run.edit(small_runs.CARD, **changes)
  _record(run, also_in_summary=True)


def _end_as_an_earlier_version(run):
  run.lines = run.lines[:-1]
  run.edit(_SUMMARY, chain=chain_lib.Chain(run.path).head)


_WEIGHTS, _REPORT = small_runs.WEIGHTS, small_runs.REPORT
_NOW_ANOTHER = r".* found digest \w{8} there and digest \w{8} in the chain"
# Each entry changes the release of a finished run, and has the message.
_FORGED = {
  "a card with another epsilon": (
    lambda run: run.edit(small_runs.CARD, privacy__epsilon=0.01),
    f"model_card.json {_NOW_ANOTHER}",
  ),
  "a card with another delta": (
    lambda run: run.edit(small_runs.CARD, privacy__delta=0.1),
    f"model_card.json {_NOW_ANOTHER}",
  ),
  "a card with a threshold": (
    lambda run: run.edit(small_runs.CARD, verification={"at_far": {}}),
    f"model_card.json {_NOW_ANOTHER}",
  ),
  "a card that is no JSON": (
    lambda run: run.shorten(small_runs.CARD),
    "hold whole files of a run, found .*model_card.json",
  ),
  "the card of another run": (
    lambda run: run.take(small_runs.CARD),
    "model_card.json .* found line",
  ),
  "no card": (
    lambda run: run.delete(small_runs.CARD),
    "model_card.json .* found none there and digest",
  ),
  "another epsilon, recorded": (
    lambda run: _forge_card(
      run, privacy__epsilon=0.01, privacy__epsilon_by_accountant={}
    ),
    "model_card.json .* found epsilon 0.01 there",
  ),
  "another epsilon by an accountant, recorded": (
    lambda run: _forge_card(run, privacy__epsilon_by_accountant__gaussian=0.01),
    "model_card.json .* found epsilon by gaussian 0.01 there",
  ),
  "another number of rounds, recorded": (
    lambda run: _forge_card(run, privacy__rounds=3),
    "model_card.json .* found rounds 3 there and 6",
  ),
  "no guarantee, recorded": (
    lambda run: _forge_card(run, privacy=None),
    "hold whole files of a run, found .*model_card.json",
  ),
  "the weights of another run": (
    lambda run: run.take(_WEIGHTS),
    f"variables.data-00000-of-00001 {_NOW_ANOTHER}",
  ),
  "weights that were changed": (
    lambda run: run.append(_WEIGHTS, b"0"),
    f"variables.data-00000-of-00001 {_NOW_ANOTHER}",
  ),
  "weights elsewhere": (
    lambda run: (
      run.delete(_WEIGHTS),
      (run.path / _WEIGHTS).symlink_to("/no/such/file"),
    ),
    f"variables.data-00000-of-00001 {_NOW_ANOTHER}",
  ),
  "no weights": (
    lambda run: run.delete(_WEIGHTS),
    "variables.data-00000-of-00001 .* found none there and digest",
  ),
  "more weights": (
    lambda run: shutil.copy(
      run.path / _WEIGHTS, run.path / _WEIGHTS.replace("00000-", "00001-")
    ),
    "variables.data-00001-of-00001 .* there and none in the chain",
  ),
  "the network of another run": (
    lambda run: run.take(small_runs.NETWORK),
    f"saved_model.pb {_NOW_ANOTHER}",
  ),
  "the weights of another run, recorded": (
    lambda run: (run.take(_WEIGHTS), _record(run)),
    "summary.json .* another digest of .*data-00000-of-00001 behind it",
  ),
  "the report of another run": (
    lambda run: run.take(_REPORT),
    f"report.html {_NOW_ANOTHER}",
  ),
  "a report that was changed": (
    lambda run: run.append(_REPORT, b"epsilon = 0.01"),
    f"report.html {_NOW_ANOTHER}",
  ),
  "no report": (
    lambda run: run.delete(_REPORT),
    "report.html .* found none there and digest",
  ),
  "the digests are gone": (
    lambda run: setattr(run, "lines", run.lines[:-1]),
    "summary.json .* found chain",
  ),
  "an earlier version": (
    _end_as_an_earlier_version,
    "with digests of release/, found none: the run or tuning was cut off",
  ),
  "an earlier version, recorded": (
    lambda run: (_end_as_an_earlier_version(run), _record(run)),
    "summary.json .* another digest of .*model_card.json behind it",
  ),
}


@pytest.mark.parametrize("case", _FORGED)
def test_a_forged_release_is_refused(run, case):
  forge, message = _FORGED[case]
  forge(run)
  with pytest.raises(ValueError, match=message) as error:
    account_run.check_release(run.path)
  small_runs.check_one_line(error)


def test_a_release_is_what_its_run_left(run):
  checked = account_run.check_release(run.path)
  assert checked["epsilon"] == account_run.recompute(run.path).report.epsilon
  assert checked["rounds"] == small_runs.ROUNDS
  assert checked["num_files"] == 4


def test_a_release_that_was_interrupted_is_recorded_again(run):
  # It ended before its summary was written, and exports other files.
  run.delete(_SUMMARY, "release")
  assert account_run.check_release(run.path) is None
  run.train()
  assert "given_away" in run.lines[-2] and "given_away" in run.lines[-1]
  assert account_run.check_release(run.path)["num_files"] == 4
