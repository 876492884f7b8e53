"""Tests of finished runs as points of utility over epsilon."""

import json
import math
import shutil

import pytest

from tests.records import chains
from tests.spec import specs
from tff_fedemb import errors
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.mechanisms import strategy as strategy_lib
from tff_fedemb.mechanisms import tree_strategy
from tff_fedemb.records import chain as chain_lib
from tff_fedemb.records import model_card
from tff_fedemb.records import run_directory
from tff_fedemb.report import measured_runs
from tff_fedemb.spec import spec as spec_lib


def write_run(
  path,
  *,
  noise=0.1,
  recall=0.5,
  epsilon=1e5,
  delta=1e-3,
  task="omniglot",
  algorithm="fedemb",
  clip_norm=0.5,
  num_images=200,
  extrapolated=None,
  metrics=None,
  **fields,
):
  """Writes the files of a finished run of 20 rounds with a tree."""
  path.mkdir(parents=True)
  mechanism = {"noise_multiplier": noise, "clip_norm": clip_norm}
  specs.write(
    path,
    task,
    algorithm=algorithm,
    mechanism={"kind": "tree"} | mechanism,
    **{"seed": 1} | fields,
  )
  added = composition.Noise(0.0)
  if noise:
    added = composition.Noise(noise, tree_strategy.TreeStrategy())
  planned = ledger_lib.Ledger(specs.PARTICIPATION, delta=delta)
  chains.write(path, planned.with_rounds(added, 20), [1] * 20)
  summary = {
    "task": task,
    "algorithm": algorithm,
    "rounds": 20,
    "recall_at_far": {"0.001": recall},
    "recall_at_far_untrained": {"0.001": 0.1},
    "evaluation": {
      "validation": {"recall_at_far": {"0.001": recall / 2}},
      "test": {"num_images": num_images, "metrics": metrics},
    },
    "privacy": {
      "epsilon": epsilon if noise else "inf",
      "delta": delta,
      "zcdp": None,
    },
    "privacy_extrapolated": extrapolated,
    "chain": chain_lib.Chain(path).head,
  }
  (path / "summary.json").write_text(json.dumps(summary))
  return path


def read(*paths):
  return measured_runs.find([str(path) for path in paths])


def curves_of(*paths):
  return measured_runs.create_curves(
    read(*paths), lambda run: {2.0: run.noise_multiplier}
  )


def test_a_run_of_several_names_counts_once(tmp_path, monkeypatch):
  path = write_run(tmp_path / "runs" / "a")
  write_run(tmp_path / "runs" / "b")
  (tmp_path / "link").symlink_to(path)
  monkeypatch.chdir(tmp_path)
  names = ("runs/*", path, "runs/../runs/a", "./runs/a/", "link")
  assert len(read(*names)) == 2


def test_copies_of_a_run_count_once(tmp_path, capsys):
  path = write_run(tmp_path / "a")
  # Another seed is no copy, whatever its figures.
  write_run(tmp_path / "c", seed=2)
  shutil.copytree(path, tmp_path / "b")
  found = read(tmp_path / "*")
  assert [path.name for path in found.path] == ["a", "c"]
  assert "a copy of another run, left out: " in capsys.readouterr().err


def test_a_trial_is_told_from_a_run(tmp_path, monkeypatch, capsys):
  path = write_run(tmp_path / "a")
  monkeypatch.setattr(chain_lib.Chain, "is_trial", True)
  read(path)
  assert f"{path}: this is a trial of a tuning" in capsys.readouterr().err


def test_sampling_seeds_are_one_measurement_of_their_own(tmp_path):
  curves = curves_of(
    write_run(tmp_path / "a", sampling_seed=None),
    write_run(tmp_path / "b", sampling_seed=1, recall=0.3),
    write_run(tmp_path / "c", sampling_seed=2, recall=0.4),
  )
  values = [m.values for points in curves.values() for m in points]
  assert sorted(values) == [(0.3, 0.4), (0.5,)]


def test_extrapolates_from_the_ledger(tmp_path):
  run = read(write_run(tmp_path / "a")).iloc[0]
  epsilon = measured_runs.extrapolate(
    run, num_users=10_000, cohort_factor=100, delta=1e-6
  )
  # 1,000 of 10,000 users: as in the simulation each user is in 2 of 20 rounds,
  # 10 apart, now at noise multiplier 10.
  sensitivity = tree_strategy.TreeStrategy().sensitivity(
    strategy_lib.Schedule(20, 10)
  )
  rho = 0.5 * (sensitivity / 10) ** 2
  # Bun and Steinke 2016, Proposition 1.3, an upper bound on epsilon.
  upper_bound = rho + 2 * math.sqrt(rho * math.log(1e6))
  assert 0.5 * upper_bound < epsilon < upper_bound


def test_seeds_are_one_measurement_and_noise_one_curve(tmp_path):
  ((name, points),) = curves_of(
    write_run(tmp_path / "a", recall=0.5),
    write_run(tmp_path / "b", recall=0.7, seed=2),
    write_run(tmp_path / "c", recall=0.2, noise=0.3),
  ).items()
  assert name == "fedemb, tree"
  assert [point.values for point in points] == [(0.5, 0.7), (0.2,)]
  extrapolated = [point.extrapolated for point in points]
  assert extrapolated == [{2.0: 0.1}, {2.0: 0.3}]


def test_other_settings_are_other_curves_and_say_so(tmp_path):
  curves = curves_of(
    write_run(tmp_path / "a"),
    write_run(tmp_path / "b", clip_norm=1.0),
    write_run(tmp_path / "c", algorithm="fedavg"),
    write_run(tmp_path / "d", noise=0.0, recall=0.8),
  )
  assert list(curves) == [
    "fedavg, tree",
    "fedemb, tree\nclip_norm=0.5",
    "fedemb, tree\nclip_norm=1.0",
  ]
  # The run without noise is a point of each curve of its algorithm.
  last = [points[-1].values for points in curves.values()]
  assert last == [(0.5,), (0.8,), (0.8,)]


def test_refuses_what_cannot_be_compared(tmp_path):
  runs = [
    write_run(tmp_path / "a", noise=0.0),
    write_run(tmp_path / "b"),
    write_run(tmp_path / "d", noise=0.0, clip_norm=2.0),
  ]
  with pytest.raises(
    ValueError, match="one setting of fedemb without noise, f"
  ):
    curves_of(*runs)
  write_run(tmp_path / "e", task="emnist")
  with pytest.raises(ValueError, match=r"one task.*found emnist, omniglot"):
    curves_of(*runs, tmp_path / "e")


def test_refuses_other_directories(tmp_path):
  (tmp_path / "none").mkdir()
  for name in ("missing", "none"):
    with pytest.raises(ValueError, match="runs must hold a finished run"):
      read(tmp_path / name)
  for name in ("summary.json", "run.json"):
    (tmp_path / "none" / name).write_text("{}")
  with pytest.raises(ValueError, match="run_dir must hold whole files of a ru"):
    read(tmp_path / "none")
  path = write_run(tmp_path / "c")
  read(path)
  (path / "rounds.jsonl").write_text("")
  with pytest.raises(ValueError, match=r"/c: .* not that of the rounds"):
    read(path)


def test_refuses_a_summary_that_tells_another_cost_than_the_card(tmp_path):
  path = write_run(tmp_path / "a", epsilon=0.01)
  card = path / run_directory.SAVED_MODEL / model_card.PATH
  card.parent.mkdir(parents=True)
  card.write_text(json.dumps({"privacy": {"epsilon": 1e5, "delta": 1e-3}}))
  with pytest.raises(errors.FieldError, match=r"found epsilon 0\.01 there and"):
    read(path)


def test_a_bug_is_no_damaged_file(tmp_path, monkeypatch):
  path = write_run(tmp_path / "a")
  with monkeypatch.context() as patched:
    patched.setattr(spec_lib.RunSpec, "settings", lambda self: None + 1)
    with pytest.raises(TypeError, match="unsupported operand"):
      read(path)
  summary = json.loads((path / "summary.json").read_text())
  (path / "summary.json").write_text(json.dumps(summary | {"evaluation": {}}))
  with pytest.raises(
    errors.DataError, match=r"/a: .*without evaluation\.test$"
  ):
    read(path)
