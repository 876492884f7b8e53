"""What a training run says at its end."""

import json


def check(output, run_dir):
  """The last lines are few, lead with recall, and end with where files are."""
  found = json.loads((run_dir / "summary.json").read_text())
  _, *start = output.partition("Recall at FAR 0.001")
  lines = "".join(start).splitlines()
  assert len(lines) <= 5
  recalls = [found[f"recall_at_far{x}"]["0.001"] for x in ("", "_untrained")]
  assert f"): {recalls[0]:.4f} (95% interval" in lines[0]
  assert f"; untrained {recalls[1]:.4f}" in lines[0]
  privacy, larger = found["privacy"], found["privacy_extrapolated"]
  assert lines[1].startswith(
    f"epsilon = {privacy['epsilon']:.4g} at delta = {privacy['delta']:g} for"
    f" one user ({found['user_meaning']}; {privacy['neighboring_relation']})"
  )
  if larger:
    assert lines[2].startswith(
      "Extrapolated, not this run's: epsilon ="
      f" {larger['user_level']['epsilon']:.4g} at delta ="
    )
  for warning in found["evaluation"]["test"]["warnings"] + privacy["warnings"]:
    assert warning in lines[-2]
  assert lines[-1].startswith(f"Written to {run_dir}: summary.json")
