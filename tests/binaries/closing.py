"""What a training run says at its end."""

import json
import re


def check_size(text):
  """Checks that an ending has at most eight lines of 80 columns."""
  lines = text.strip().splitlines()
  assert len(lines) <= 8, text
  for line in lines:
    # A path is not broken.
    assert len(line) <= 80 or len(line.split()) <= 2, line


def check(output, run_dir):
  """The last lines are few, lead with recall, and end with where files are."""
  found = json.loads((run_dir / "summary.json").read_text())
  ending = "".join(output.partition("Recall at FAR 0.001")[1:])
  check_size(ending)
  told = " ".join(ending.split())
  recalls = [found[f"recall_at_far{x}"]["0.001"] for x in ("", "_untrained")]
  assert f"): {recalls[0]:.4f} (95% interval" in told
  assert f"; untrained {recalls[1]:.4f}" in told
  privacy, larger = found["privacy"], found["privacy_extrapolated"]
  assert (
    f" epsilon = {privacy['epsilon']:.4g} at delta = {privacy['delta']:g} for"
    f" one user ({found['user_meaning']}; {privacy['neighboring_relation']})"
  ) in told
  warnings = found["evaluation"]["test"]["warnings"] + privacy["warnings"]
  assert told.count(" warning: ") >= bool(warnings)
  # Those that have no room are counted.
  if not re.search(r" warning: there are |\(\d+ more\) Written", told):
    for warning in warnings:
      assert f" warning: {warning[:40]}" in told
  if larger and "Extrapolated" in told:
    assert (
      "Extrapolated, not this run's: epsilon ="
      f" {float(larger['user_level']['epsilon']):.4g} at delta ="
    ) in told
  # A path that is longer than a line has one of its own.
  assert f" Written to {run_dir}: summary.json" in told
