"""Tests of the centralized program from the command line."""

import json

import pytest

from tests.binaries import programs
from tff_fedemb.evaluation import retrieval


@pytest.fixture(name="call", scope="module")
def _call(data_dir):
  def call(run_dir, *more):
    return programs.call(
      "run_centralized",
      "--task=emnist",
      f"--data_dir={data_dir}",
      f"--run_dir={run_dir}",
      "--users_per_round=3",
      "--rounds=2",
      "--evaluate_every=2",
      "--client_optimizer=sgdm",
      "--client_lr_schedule=linear",
      "--head=arcface",
      *more,
    )

  return call


@pytest.mark.slow
def test_trains_without_privacy_and_says_so(call, tmp_path):
  run_dir, exported = tmp_path / "run", tmp_path / "backbone"
  ended = call(run_dir, f"--export_backbone={exported}", "--metrics")
  assert ended.status == 0
  assert f"Exported the backbone to {exported}." in ended.output
  assert "epsilon = inf" in ended.output
  # The same command again finds nothing left to do.
  assert "This run is complete" in call(run_dir).output
  # Another seed is another run.
  assert "run_dir must be new or of a run with the same" in (
    call(run_dir, "--seed=7").errors
  )
  summary = json.loads((run_dir / "summary.json").read_text())
  assert summary["privacy"]["epsilon"] == "inf"
  assert summary["privacy_extrapolated"] is None
  for when in ("evaluation", "evaluation_untrained"):
    metrics = summary[when]["test"]["metrics"]
    assert set(metrics) == set(retrieval.TITLES)
    assert 0 < metrics["map_at_r"] <= metrics["r_precision"] <= 1
  # Backbone, and a global head of 36 rows.
  assert summary["num_private_parameters"] == 453_632 + 36 * 128
  assert (run_dir / "release/saved_model/saved_model.pb").exists()
  asked = json.loads((run_dir / "run.json").read_text())
  algorithm = asked["algorithm"]
  assert (algorithm["kind"], algorithm["head"]["kind"], asked["rounds"]) == (
    *("centralized", "arcface"),
    2,
  )
  # Defaults are recorded, parts that pooled training does not have are not.
  assert algorithm["head"]["margin"] == 0.3
  assert not {"participation", "mechanism", "run_dir"} & set(asked)


def test_number_of_users_is_checked(call, tmp_path):
  ended = call(tmp_path / "run", "--users_per_round=7")
  programs.check_refused(ended, "--users_per_round must be")
  assert ended.errors.endswith("found 7.\n")
  assert not (tmp_path / "run").exists()
