"""Tests of `deployment`: files that describe deployments."""

import json

import pytest

from tff_fedemb import errors
from tff_fedemb.deployment import deployment


@pytest.mark.parametrize("name", deployment.PRESETS)
def test_presets_can_be_read(name):
  found = deployment.load(name)
  assert found.description.endswith(".")
  assert found.to_json()["server"]["deadline_minutes"] > 0
  # As it comes back from a file.
  assert deployment.parse(json.loads(json.dumps(found.to_json()))) == found


def test_values_are_those_of_the_file(tmp_path):
  path = tmp_path / "own.yaml"
  path.write_text("""
description: Two zones.
availability:
  time_zones: {-5: 3, 5.5: 1}
  base: 0.5
  amplitude: 0.25
  session_minutes: .inf
compute: {milliseconds_per_example: 7}
server:
  over_selection: 1.4
  deadline_minutes: 5
""")
  found = deployment.load(path)
  assert dict(found.availability.time_zones) == {-5: 3, 5.5: 1}
  assert found.network.upload_mbps == float("inf")
  assert found.to_json()["availability"]["session_minutes"] == "inf"


_GOOD = {
  "description": "Good.",
  "availability": {"time_zones": {0: 1}, "base": 1, "amplitude": 0},
  "compute": {"milliseconds_per_example": 0},
  "server": {"deadline_minutes": 1},
}


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"sever": {}}, "deployment must .* argument 'sever'"),
    ({"server": {}}, "server must .* missing .* 'deadline_minutes'"),
    ({"server": 3}, "server must have its values by name, found 3"),
    (
      {"server": {"deadline_minutes": 1, "over_selection": 0.9}},
      r"over_selection must be in \[1, 10\]",
    ),
    (
      {"server": {"deadline_minutes": 1, "check_in_minutes": 60}},
      "selection_minutes must be at least check_in_minutes, 60, found 30",
    ),
    (
      {"availability": {"time_zones": {}, "base": 1, "amplitude": 0}},
      "time_zones must be weights",
    ),
    (
      {"availability": {"time_zones": {"x": 1}, "base": 1, "amplitude": 0}},
      "availability must .* could not convert",
    ),
    (
      {"compute": {"milliseconds_per_example": 0, "examples_sigma": 1}},
      "examples_sigma must be 0 with equal_work",
    ),
  ],
)
def test_what_is_wrong_is_named(changes, message):
  with pytest.raises(errors.FieldError, match=message):
    deployment.parse(_GOOD | changes)


@pytest.mark.parametrize("content", [None, b"{", b"\xff"])
def test_files_that_are_none_are_refused(content, tmp_path):
  path = tmp_path / "bad.yaml"
  if content is not None:
    path.write_bytes(content)
  with pytest.raises(errors.FieldError, match="phones, harsh or a YAML file"):
    deployment.load(path)
