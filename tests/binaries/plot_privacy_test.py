"""Tests of the program that draws what privacy costs."""

import re

from PIL import Image
import pytest

from tests.binaries import programs
from tests.report import measured_runs_test
from tff_fedemb.report import privacy_pictures

# Exact accountants only, and few users.
QUICK = (
  "--participation=min_separation",
  "--num_users=1000",
  "--delta=1e-5",
  "--users_per_round=100",
  "--users_per_client=2",
  "--rounds=30",
  "--noise_multipliers=2,8",
)


def run(tmp_path, *arguments):
  return programs.call(
    "plot_privacy", f"--output_dir={tmp_path}/out", *QUICK, *arguments
  )


def pictures(tmp_path):
  return sorted(path.name for path in (tmp_path / "out").glob("*"))


@pytest.mark.parametrize(
  "mechanism,participation,users_per_round",
  [
    ("tree", "min_separation", 100),
    ("gaussian", "poisson", 100),
    # Draws 1,000 / 11 users on average, and so few need not be enough.
    ("gaussian", "random_allocation", 96),
  ],
)
def test_pictures_of_accounting(
  monkeypatch, tmp_path, mechanism, participation, users_per_round
):
  few = dict.fromkeys(privacy_pictures._NUM_POINTS, 3)
  monkeypatch.setattr(privacy_pictures, "_NUM_POINTS", few)
  monkeypatch.setattr(privacy_pictures, "_NUM_PLD_POINTS", 1)
  ended = run(
    tmp_path,
    f"--mechanism={mechanism}",
    f"--participation={participation}",
    f"--users_per_round={users_per_round}",
    "--rounds=3",
    "--noise_multipliers=30",
  )
  assert (ended.status, ended.errors) == (0, "")
  names = ["epsilon_by_rounds.png", "epsilon_by_users.png"]
  assert pictures(tmp_path) == names
  assert ended.output.splitlines() == [f"{tmp_path}/out/{n}" for n in names]
  for name in names:
    with Image.open(tmp_path / "out" / name) as image:
      assert image.format == "PNG"


@pytest.mark.slow
def test_picture_of_measured_runs_without_tensorflow(tmp_path):
  measured_runs_test.write_run(tmp_path / "runs" / "a")
  measured_runs_test.write_run(tmp_path / "runs" / "b", noise=0.0)
  (tmp_path / "runs" / "c").mkdir()
  result = programs.start(
    "binaries.plot_privacy",
    f"--output_dir={tmp_path}/out",
    *QUICK,
    f"--runs={tmp_path}/runs/*",
    "--cohort_factors=5,10",
    options=("-X", "importtime"),
  )
  assert result.status == 0, result.errors
  names = pictures(tmp_path)
  assert names[2:] == ["measured_by_users.png", "utility_by_epsilon.png"]
  assert result.output.splitlines() == [f"{tmp_path}/out/{n}" for n in names]
  assert "not finished, left out: c" in result.errors
  assert " dp_accounting\n" in result.errors
  assert "tensorflow" not in result.errors


@pytest.mark.parametrize(
  "arguments,error",
  [
    (["--noise_multipliers=1,x"], "--noise_multipliers must be 1 to 6"),
    (["--runs=/nowhere/*"], "--runs must hold a finished run"),
  ],
)
def test_mistakes_are_one_line(tmp_path, arguments, error):
  programs.check_refused(run(tmp_path, *arguments), error)
  assert not pictures(tmp_path)


@pytest.mark.parametrize(
  "num_runs,factor,message",
  [
    (1, 500, r"cohort_factor x users_per_round must be at most .*run0\)"),
    (7, 10, "--runs must differ in at most 6 settings"),
  ],
)
def test_runs_that_cannot_be_drawn(tmp_path, num_runs, factor, message):
  for i in range(num_runs):
    measured_runs_test.write_run(tmp_path / f"run{i}", clip_norm=i + 1.0)
  runs = f"--runs={tmp_path}/run*"
  result = run(tmp_path, runs, f"--cohort_factors={factor}")
  assert result.status == 1
  assert re.search(message, result.errors)
  assert not pictures(tmp_path)
