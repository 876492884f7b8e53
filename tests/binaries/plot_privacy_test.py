"""Tests of the program that draws what privacy costs."""

import subprocess
import sys

from PIL import Image
import pytest

from tests.experiments import measured_runs_test

# Seconds: exact accountants only, and few users.
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
  return subprocess.run(
    [
      *(sys.executable, "-m", "binaries.plot_privacy"),
      f"--output_dir={tmp_path}/out",
      *arguments,
    ],
    capture_output=True,
    text=True,
    check=False,
  )


def pictures(tmp_path):
  return sorted(path.name for path in (tmp_path / "out").glob("*"))


@pytest.mark.parametrize("mechanism", ["gaussian", "tree"])
def test_pictures_of_accounting(tmp_path, mechanism):
  result = run(tmp_path, *QUICK, f"--mechanism={mechanism}")
  assert result.returncode == 0, result.stderr
  names = ["epsilon_by_rounds.png", "epsilon_by_users.png"]
  assert pictures(tmp_path) == names
  assert result.stdout.splitlines() == [f"{tmp_path}/out/{n}" for n in names]
  for name in names:
    with Image.open(tmp_path / "out" / name) as image:
      assert image.format == "PNG"


@pytest.mark.parametrize("participation", ["poisson", "fixed_size"])
def test_sampled_participation(tmp_path, participation):
  result = run(
    tmp_path,
    *QUICK,
    f"--participation={participation}",
    "--noise_multipliers=30",
    "--rounds=3",
  )
  assert result.returncode == 0, result.stderr
  assert len(pictures(tmp_path)) == 2


def test_picture_of_measured_runs(tmp_path):
  measured_runs_test.write_run(tmp_path / "runs" / "a")
  measured_runs_test.write_run(tmp_path / "runs" / "b", noise=0.0)
  (tmp_path / "runs" / "c").mkdir()
  result = run(
    tmp_path, *QUICK, f"--runs={tmp_path}/runs/*", "--cohort_factors=5,10"
  )
  assert result.returncode == 0, result.stderr
  assert pictures(tmp_path)[-1] == "utility_by_epsilon.png"
  assert "not finished, left out: c" in result.stderr


@pytest.mark.parametrize(
  "arguments,error",
  [
    (["--noise_multipliers=1,x"], "--noise_multipliers must be 1 to 6"),
    (["--noise_multipliers=0"], "--noise_multipliers must be 1 to 6"),
    (["--noise_multipliers=1,2,3,4,5,6,7"], "--noise_multipliers must be"),
    (["--num_users=10"], "--users_per_round must be"),
    (["--rounds=0"], "--rounds must be"),
    (["--delta=2"], "--delta must be"),
    (["--participation=often"], "--participation must be one of"),
    (["--mechanism=magic"], "--mechanism must be one of"),
    (
      ["--mechanism=tree", "--participation=poisson"],
      "--participation must be min_separation",
    ),
    (["--runs=/nowhere/*"], "--runs must be directories of runs"),
  ],
)
def test_mistakes_are_one_line(tmp_path, arguments, error):
  result = run(tmp_path, *QUICK, *arguments)
  assert result.returncode == 1
  assert result.stderr.startswith(f"error: {error}"), result.stderr
  assert result.stderr.count("\n") == 1
  assert not (tmp_path / "out").exists()


def test_cohort_larger_than_the_population(tmp_path):
  measured_runs_test.write_run(tmp_path / "a")
  result = run(tmp_path, *QUICK, f"--runs={tmp_path}/a", "--cohort_factors=500")
  assert result.returncode == 1
  assert "cohort_factor x users_per_round must be at most" in result.stderr
  assert not (tmp_path / "out").exists()


def test_too_many_settings(tmp_path):
  for i in range(7):
    measured_runs_test.write_run(tmp_path / f"run{i}", clip_norm=i + 1.0)
  result = run(
    tmp_path, *QUICK, f"--runs={tmp_path}/run*", "--cohort_factors=10"
  )
  assert result.returncode == 1
  assert "must be 1 to 6, found 7" in result.stderr
  assert not (tmp_path / "out").exists()


def test_output_where_a_file_is(tmp_path):
  (tmp_path / "out").write_text("mine")
  result = run(tmp_path, *QUICK)
  assert result.returncode == 1
  assert result.stderr.startswith("error: --output_dir must be a directory")
  assert (tmp_path / "out").read_text() == "mine"


def test_needs_no_tensorflow():
  code = (
    "import sys; from binaries import plot_privacy; "
    "sys.exit('tensorflow' in sys.modules)"
  )
  subprocess.run([sys.executable, "-c", code], check=True)
