"""Tests of the program that plans deployments."""

import json

from tests.binaries import programs


def call(tmp_path, *arguments):
  return programs.call(
    "plan_deployment",
    "--num_users=2000",
    "--rounds=6",
    "--noise_on_mean=0.02",
    "--clients_per_round=10,20",
    "--over_selections=1.2,1.5",
    "--deadlines_minutes=5",
    "--separation_shares=0.25",
    f"--output_json={tmp_path}/plans.json",
    *arguments,
  )


def test_plans_for_phones(tmp_path):
  ended = call(tmp_path, "--days=3")
  assert (ended.status, ended.errors) == (0, "")
  assert ended.output.count("\n") > 6
  found = json.loads((tmp_path / "plans.json").read_text())
  assert len(found["plans"]) == 4
  best = found["recommended"]
  assert best["clients_per_round"] == 20 and 0 < best["days"] <= 3
  assert best["epsilon"] == min(row["epsilon"] for row in found["plans"])
  # The same again.
  again = call(tmp_path, "--days=3", "--overwrite")
  assert again.output == ended.output


def test_mistakes_are_one_line(tmp_path):
  programs.check_refused(call(tmp_path), "--days must be given")
  ended = call(tmp_path, "--days=3", "--deployment=boats")
  programs.check_refused(ended, "a deployment must be one of ideal")
  (tmp_path / "plans.json").write_text("mine")
  ended = call(tmp_path, "--days=3")
  programs.check_refused(ended, "--output_json must be a new file")
  assert (tmp_path / "plans.json").read_text() == "mine"
