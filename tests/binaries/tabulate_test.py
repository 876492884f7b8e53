"""Tests of the program that makes a table of runs, and a picture."""

import json
import math

import dp_accounting
from PIL import Image
import pytest

from tests.binaries import programs
from tests.plots import drawn
from tests.program import chains
from tests.report import measured_runs_test
from tests.run import specs
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.program import chain as chain_lib
from tff_fedemb.report import measured_runs
from tff_fedemb.report import tabulate as tabulate_run


def _write(
  path, *, seed, recall, algorithm="fedemb", extrapolated=None, num_images=200
):
  path.mkdir()
  mechanism = {"kind": "blt", "noise_multiplier": 0.1}
  specs.write(path, algorithm=algorithm, mechanism=mechanism, seed=seed)
  ledger = ledger_lib.Ledger(specs.PARTICIPATION, delta=0.0125)
  event = dp_accounting.NonPrivateDpEvent()
  chains.write(path, ledger.with_rounds(event, 7), [1] * 7)
  summary = {
    "task": "omniglot",
    "algorithm": algorithm,
    "rounds": 7,
    "recall_at_far": {"0.001": recall},
    "recall_at_far_untrained": {"0.001": 0.25},
    "privacy": {"epsilon": "inf", "delta": 0.0125},
    "privacy_extrapolated": extrapolated,
    "chain": chain_lib.Chain(path).head,
    "evaluation": {
      "validation": {"recall_at_far": {"0.001": recall / 2}},
      "test": {"num_images": num_images},
    },
  }
  (path / "summary.json").write_text(json.dumps(summary))
  return str(path)


def test_seeds_share_a_row(tmp_path):
  paths = [
    _write(tmp_path / "a", seed=1, recall=0.5),
    _write(tmp_path / "b", seed=2, recall=0.7),
    _write(
      tmp_path / "c",
      seed=1,
      recall=0.125,
      algorithm="fedavg",
      extrapolated={
        "user_level": {"epsilon": 12.345},
        "authors": {"epsilon": 3.9},
        "delta": 2e-8,
        "zcdp": 1.2824,
      },
    ),
  ]
  result = programs.call("tabulate", *paths)
  assert result.status == 0, result.errors
  lines = result.output.splitlines()
  assert len(lines) == 4
  assert lines[0].startswith("| run | task |")
  # Deviation of 0.5 and 0.7 is 0.1 sqrt(2).
  assert lines[2].startswith("| a, b | omniglot |")
  assert lines[2].endswith(
    "| 7 | 0.3000 +- 0.0707 | 0.6000 +- 0.1414 | 0.2500 +- 0.0000 | 200 | 2"
    " | inf | 0.0125 | - | - | - | - |"
  )
  assert lines[3].startswith("| c | omniglot |")
  assert lines[3].endswith(
    "| fedavg | blt | min_separation | 0.1 | 1.0 | 7 | 0.0625 | 0.1250 | 0.2500"
    " | 200 | 1 | inf | 0.0125 | - | 12.3; 3.9 | 2e-08 | 1.28 |"
  )


def test_recalls_of_other_images_are_told(tmp_path):
  """Runs a/x and b/x differ in their images; b/x and c/x are two seeds."""
  paths = []
  for name, algorithm, seed, num_images in (
    ("a", "fedemb", 1, 200),
    ("b", "fedavg", 1, 20_000),
    ("c", "fedavg", 2, 20_000),
  ):
    (tmp_path / name).mkdir()
    paths.append(
      _write(
        tmp_path / name / "x",
        seed=seed,
        recall=0.5,
        algorithm=algorithm,
        num_images=num_images,
      )
    )
  result = programs.call("tabulate", *paths)
  assert result.status == 0
  rows = result.output.splitlines()[2:]
  names = [row.partition("omniglot")[0] for row in rows]
  assert names == ["| a/x | ", "| b/x, c/x | "]
  assert result.errors == (
    "warning: recalls are of 200 or 20,000 test images, and cannot be compared"
    " across these\n"
  )


def test_mistakes_are_one_line(tmp_path):
  for arguments, error in (
    ([], "arguments must be directories of runs"),
    ([str(tmp_path)], "runs must be directories of finished runs"),
    ([str(tmp_path), "--output_png=/none/a.png"], "--output_png must be in"),
  ):
    programs.check_refused(programs.call("tabulate", *arguments), error)


def _write_noises(tmp_path):
  """Two seeds of both algorithms at three epsilons, of which one is none."""
  for algorithm in ("fedavg", "fedemb"):
    for seed in (1, 2):
      for noise, epsilon in ((0.0, math.inf), (1.0, 1.02345), (0.5, 7.5)):
        measured_runs_test.write_run(
          tmp_path / f"{algorithm}_z{noise}_s{seed}",
          noise=noise,
          epsilon=epsilon,
          recall=0.1 * seed,
          algorithm=algorithm,
          seed=seed,
        )


def test_picture_of_measured_epsilons(tmp_path):
  _write_noises(tmp_path / "study")
  (tmp_path / "study" / "running").mkdir()
  path = tmp_path / "recall.png"
  folders = sorted(map(str, (tmp_path / "study").iterdir()))
  command = ("tabulate", f"--output_png={path}", *folders)
  result = programs.call(*command)
  assert result.status == 0, result.errors
  assert "not finished, left out: running" in result.errors
  assert len(result.output.splitlines()) == 2 + 6
  with Image.open(path) as image:
    assert image.format == "PNG"
  programs.check_refused(programs.call(*command), "--output_png must be a new")


def test_picture_has_epsilons_seeds_and_what_is_without_noise(tmp_path):
  _write_noises(tmp_path)
  runs, _ = measured_runs.find([f"{tmp_path}/*"])
  figure = drawn.figure_of(tabulate_run.prepare(runs))
  (axes,) = figure.axes
  assert axes.get_xlabel() == "ε (δ = 0.001)"
  assert axes.get_ylabel() == "recall at FAR 0.001"
  ticks = [label.get_text() for label in axes.get_xticklabels()]
  assert ticks == ["1.02", "7.5", "no noise"]
  heights = [drawn.values(c.lines[0], "y") for c in axes.containers]
  assert [len(some) for some in heights] == [2, 1, 2, 1]
  for some in heights:
    assert list(some) == pytest.approx([0.15] * len(some))
  assert drawn.legend_of(figure) == [
    "method (2 seeds)",
    "fedavg, tree",
    "fedemb, tree",
    " ",
    "for comparison",
    "untrained",
  ]
  drawn.assert_nothing_overlaps(figure)


def test_two_deltas(tmp_path):
  for name, delta in (("a", 1e-3), ("b", 1e-4)):
    measured_runs_test.write_run(tmp_path / name, delta=delta)
  runs, _ = measured_runs.find([f"{tmp_path}/*"])
  figure = drawn.figure_of(tabulate_run.prepare(runs))
  assert figure.axes[0].get_xlabel() == "ε"
  assert drawn.legend_of(figure)[1:3] == [
    "fedemb, tree, δ = 0.0001",
    "fedemb, tree, δ = 0.001",
  ]


def test_a_picture_that_is_refused_costs_no_table(tmp_path):
  measured_runs_test.write_run(tmp_path / "a", noise=0.0)
  path = tmp_path / "recall.png"
  result = programs.call(
    "tabulate", f"--output_png={path}", str(tmp_path / "a")
  )
  programs.check_refused(result, "runs must include some with noise")
  assert result.output.splitlines()[2].startswith("| a | omniglot |")
  assert not path.exists()


def test_changes_of_a_baseline(tmp_path):
  for name, recall, options in (
    ("a_larger", 0.75, {"seed": 1, "rounds": 8}),
    ("base_1", 0.25, {"seed": 1}),
    ("base_2", 0.5, {"seed": 2}),
    ("c_both", 0.125, {"seed": 3, "rounds": 8, "clip_norm": 1.0}),
  ):
    measured_runs_test.write_run(
      tmp_path / name, noise=1.0, epsilon=2.0, recall=recall, **options
    )
  folders = sorted(map(str, tmp_path.iterdir()))
  picture = tmp_path / "changes.png"
  baseline = f"--baseline={tmp_path / 'base_1'}"
  result = programs.call(
    *("tabulate", f"--output_png={picture}", baseline, *folders)
  )
  assert result.status == 0, result.errors
  header, _, *rows = result.output.splitlines()
  assert header.startswith("| change | run | task |")
  starts = [row.split(" | ")[0] for row in rows]
  assert starts == ["| none", "| rounds=8", "| clip_norm=1.0, rounds=8"]
  # Also if the baseline is named twice, there are two seeds of it.
  again = programs.call("tabulate", baseline, *(f"{f}/" for f in folders))
  assert again.output == result.output
  assert picture.exists()
  programs.check_refused(
    programs.call(
      *("tabulate", f"--output_png={tmp_path}/b.png", baseline, folders[2])
    ),
    "runs must change something of the baseline",
  )
  (tmp_path / "base_1" / "summary.json").unlink()
  programs.check_refused(
    programs.call("tabulate", baseline, *folders),
    "runs must be directories of finished runs",
  )
