"""Tests of what may be given away of a run."""

import math
import stat

import pytest

from tests.run import small_runs
from tff_fedemb import errors
from tff_fedemb.program import model_card
from tff_fedemb.program import release
from tff_fedemb.program import run_directory

_CARD = f"{run_directory.SAVED_MODEL}/{model_card.PATH}"


@pytest.fixture(name="run")
def _run(tmp_path):
  run = small_runs.SmallRun(tmp_path / "run", correlated=True)
  run.train()
  _write_card(run.path, epsilon=2.5)
  return run.path


def _write_card(run, **privacy):
  card = model_card.ModelCard(
    image_shape=(2, 2, 1), embedding_dim=3, privacy=privacy
  )
  model_card.write(card, run / _CARD)


def _list(run):
  values, text = release.tell(run)
  for entry in values["files"]:
    assert entry["path"] in text
    assert entry["reveals"] in text
  return values["covered"], {x["path"]: x["kind"] for x in values["files"]}


def test_every_file_of_a_run_is_known_and_secrets_are_its_owners(run):
  covered, kinds = _list(run)
  assert covered.startswith("the guarantee (epsilon = 2.5) covers release/")
  assert kinds == {
    "METRICS_ARE_NOT_PRIVATE.txt": release.PUBLIC,
    "checkpoints/": release.SECRET,
    "checkpoints/sampling_key": release.SECRET,
    "metrics.csv": release.NOT_COVERED,
    "participation.trace": release.SECRET,
    _CARD: release.COVERED,
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


def test_nothing_is_claimed_for_a_run_without_a_guarantee(run):
  _write_card(run, epsilon="inf")
  assert _list(run)[0].startswith("no guarantee covers this run, release/ incl")
  assert release.say(math.inf) == _list(run)[0]
  (run / _CARD).unlink()
  assert _list(run)[0].startswith("no model is there")


def test_no_run_is_one_line(tmp_path):
  with pytest.raises(errors.FieldError, match="run_dir must hold a run, found"):
    release.tell(tmp_path)
