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
  assert found.availability.amplitude == 0.25
  assert found.compute.milliseconds_per_example == 7
  assert found.compute.equal_work
  assert found.network.upload_mbps == float("inf")
  assert found.server.over_selection == 1.4
  assert found.server.max_participations is None
  assert found.to_json()["availability"]["session_minutes"] == "inf"


_GOOD = {
  "description": "Good.",
  "availability": {"time_zones": {0: 1}, "base": 1, "amplitude": 0},
  "compute": {"milliseconds_per_example": 0},
  "server": {"deadline_minutes": 1},
}


@pytest.mark.parametrize(
  ("changes", "name"),
  [
    ({"sever": {}}, "sever"),
    ({"server": {}}, "server.deadline_minutes"),
    ({"server": 3}, "server"),
    (3, "deployment"),
    (
      {"server": {"deadline_minutes": 1, "over_selection": 0.9}},
      "server.over_selection",
    ),
    ({"network": {"download": 3}}, "network.download"),
    (
      {"availability": {"time_zones": {}, "base": 1, "amplitude": 0}},
      "availability.time_zones",
    ),
    (
      {"compute": {"milliseconds_per_example": 0, "examples_sigma": 1}},
      "compute.examples_sigma",
    ),
  ],
)
def test_what_is_wrong_is_named_as_in_the_file(changes, name):
  with pytest.raises(errors.FieldError) as error:
    deployment.parse(_GOOD | changes if isinstance(changes, dict) else changes)
  assert error.value.name == name


@pytest.mark.parametrize("content", [None, b"{", b"\xff"])
def test_files_that_are_none_are_refused(content, tmp_path):
  path = tmp_path / "bad.yaml"
  if content is not None:
    path.write_bytes(content)
  with pytest.raises(errors.DataError, match="phones, harsh or a YAML file"):
    deployment.load(path)
