"""Tests of training under a deployment from the command line."""

import json
import re

import pandas as pd
import pytest

from tests.binaries import closing
from tests.binaries import programs
from tff_fedemb.report import finished_run
from tff_fedemb.report import templates

_TINY = (
  "--task=emnist",
  "--clients_per_round=2",
  "--rounds=4",
  "--batch_size=64",
  "--evaluate_every=4",
  "--max_evaluation_images=40",
  "--max_held_out_images=40",
  "--extrapolated_num_users=0",
)
# Devices that are there every other time, of which every fifth is lost.
OWN = """
description: Six devices.
availability: {time_zones: {0: 1}, base: 0.7, amplitude: 0.1}
compute: {milliseconds_per_example: 5, sigma: 1, equal_work: false}
dropout_rate: 0.2
server:
  over_selection: 1.5
  deadline_minutes: 5
  check_in_minutes: 30
  min_separation: 2
  max_participations: 3
"""


@pytest.mark.slow
def test_a_run_under_a_deployment(data_dir, tmp_path):
  run_dir, own = tmp_path / "run", tmp_path / "own.yaml"
  own.write_text(OWN)
  arguments = (
    *(*_TINY, f"--data_dir={data_dir}", f"--run_dir={run_dir}"),
    *(f"--deployment={own}", "--aggregator=tree", "--noise_multiplier=2"),
  )
  planned = programs.succeed("run_federated", *arguments, "--dry_run")
  assert not run_dir.exists()
  assert re.search(
    r"\n  time    [\d.]+ s; .+\n  memory  [\d.]+ GB", planned, re.S
  )
  output = programs.succeed("run_federated", *arguments)
  closing.check(output, run_dir)
  # The ending says so where warnings leave room for it.
  run = finished_run.FinishedRun.read(run_dir)
  extras = templates.render("closing_extras.txt", run=run)
  assert extras.startswith("4 rounds took ")
  assert "plots/deployment.png" in extras
  rows = pd.read_csv(run_dir / "deployment.csv")
  assert (rows.abandoned == 0).sum() == 4
  # The dry run told the timetable of these very rounds.
  planned = " ".join(planned.split())
  hours, sums = rows.end_hours.iloc[-1], rows.sum()
  assert f"4 rounds take {hours / 24:.3g} simulated days" in planned
  assert (
    f"{4 / hours:.3g} rounds an hour, {sums.abandoned / len(rows):.1%} of the"
    f" rounds abandoned; {sums.dropped / sums.selected:.1%} of the selected"
  ) in planned
  summary = json.loads((run_dir / "summary.json").read_text())
  assert summary["deployment"]["rounds_released"] == 4
  # The report says in words what epsilon rests on.
  statement = summary["privacy"]["statement"]
  assert "at most once in any 2 consecutive released rounds" in statement
  assert "it is ASSUMED, and not enforced, that a user's data" in statement
  assert summary["privacy"]["max_participations"] == 2
  # LeNet and back in single precision.
  values = json.loads((run_dir / "deployment.json").read_text())
  assert values["work"]["bytes_up"] == 4 * summary["num_private_parameters"]
  assert values["work"]["examples"] == pytest.approx(70 / 6)
  assert not (run_dir / "checkpoints" / "sampling_key").exists()
  explained = programs.succeed(
    "account", "epsilon", "--explain", f"--run_dir={run_dir}"
  )
  assert "rounds was replayed from deployment.json" in explained
  values["seed"] += 1
  (run_dir / "deployment.json").write_text(json.dumps(values))
  ended = programs.call("account", "epsilon", f"--run_dir={run_dir}")
  programs.check_refused(ended, "--run_dir must hold a deployment.json")
