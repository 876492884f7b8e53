"""Tests of what may be given away of a run."""

import math
import stat

import pytest

from tests.spec import small_runs
from tff_fedemb import errors
from tff_fedemb.records import release
from tff_fedemb.records import run_directory
from tff_fedemb.report import account


@pytest.fixture(name="run")
def _run(tmp_path):
  run = small_runs.SmallRun(tmp_path / "run", correlated=True)
  run.train()
  return run.path


def _list(run, **changes):
  checked = account.check_release(run)
  values, text = release.tell(run, checked and {**checked, **changes})
  for entry in values["files"]:
    assert entry["path"] in text
    assert entry["reveals"] in text
  return values["covered"], {x["path"]: x["kind"] for x in values["files"]}


def test_every_file_of_a_run_is_known_and_secrets_are_its_owners(run):
  covered, kinds = _list(run, epsilon=2.5)
  assert covered.startswith("the guarantee (epsilon = 2.5) covers release/")
  assert kinds == {
    "METRICS_ARE_NOT_PRIVATE.txt": release.PUBLIC,
    "checkpoints/": release.SECRET,
    "checkpoints/sampling_key": release.SECRET,
    "metrics.csv": release.NOT_COVERED,
    "participation.trace": release.SECRET,
    small_runs.CARD: release.COVERED,
    small_runs.NETWORK: release.COVERED,
    small_runs.REPORT: release.COVERED,
    small_runs.WEIGHTS: release.COVERED,
    "rounds.jsonl": release.SECRET,
    "run.json": release.NOT_COVERED,
    "summary.json": release.NOT_COVERED,
    "tensorboard/": release.NOT_COVERED,
  }
  for name, kind in kinds.items():
    if kind == release.SECRET:
      path = run / name
      mode = 0o700 if path.is_dir() else 0o600
      assert stat.S_IMODE(path.stat().st_mode) == mode, name


def test_what_is_not_known_is_not_covered(run):
  names = ["notes.txt", "release/notes.txt", "release/saved_model/users.csv"]
  for name in names:
    (run / name).write_text("user 7")
  (run / "elsewhere").symlink_to("nowhere")
  kinds = _list(run)[1]
  for name in (*names, "elsewhere"):
    assert kinds[name] == release.NOT_COVERED


def test_what_was_recomputed_is_told(run):
  checked = account.check_release(run)
  text = release.tell(run, checked)[1].splitlines()[1]
  assert text.startswith("Recomputed from rounds.jsonl and participation.trace")
  assert f": epsilon = {checked['epsilon']:.6g} at delta = 0.001 (" in text
  assert " after 6 rounds, as the card and summary.json say. " in text
  assert text.endswith(
    " The 4 files to be given away are as they were left: the last line of"
    " rounds.jsonl has their digests."
  )


def test_nothing_is_claimed_for_a_run_without_a_guarantee(run):
  covered, _ = _list(run, epsilon="inf")
  assert covered.startswith("no guarantee covers this run, release/ included")
  assert release.say(math.inf) == covered
  (run / run_directory.SUMMARY).unlink()
  assert _list(run)[0].startswith("nothing is there to be given away yet")


def test_a_tuning_says_what_is_covered(tmp_path):
  for name in (run_directory.SPEC, run_directory.TUNING):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("{}")
  checked = {"epsilon": 2.5, "delta": 0.1, "num_files": 2}
  covered, _ = release.tell(tmp_path, checked)
  assert covered["covered"] == "no model is there to be given away"
  (tmp_path / small_runs.CARD).parent.mkdir(parents=True)
  (tmp_path / small_runs.CARD).touch()
  covered, text = release.tell(tmp_path, checked)
  assert covered["covered"].startswith("the guarantee (epsilon = 2.5) covers")
  assert text.splitlines()[1].endswith(
    "as they were left: trials/given_away.json has their digests."
  )


def test_no_run_is_one_line(tmp_path):
  with pytest.raises(errors.FieldError, match="run_dir must hold a run, found"):
    release.tell(tmp_path)
