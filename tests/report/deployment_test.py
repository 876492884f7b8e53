"""Tests of what a report says of devices that came and went."""

import types

import pandas as pd
import pytest

from tff_fedemb.participation import check_ins
from tff_fedemb.report import deployment

_SUMMARY = {
  "wall_seconds": 61.4,
  "deployment": {
    "description": "Old phones.",
    "days": 2.5,
    "rounds_a_day": 1.2,
    "rounds_released": 3,
    "rounds_abandoned": 1,
    "selected": 50,
    "reported": 35,
    "aborted": 5,
    "late": 4,
    "interrupted": 1,
    "dropped": 5,
    "session_shapes": {"finished": 0.75, "rejected": 0.23, "interrupted": 0.02},
    "bytes_down": 1_500_000,
    "bytes_up": 999,
    "devices_never_reached": 80,
    "participation_by_device_class": {"slow": 0.25, "fast": 0.75},
    "measured": {"min_separation": 3, "max_participations": 1},
  },
}


def describe(*, found=(), **options):
  claim = check_ins.CheckIns(100, 10, min_separation=2, **options)
  run = types.SimpleNamespace(
    summary=_SUMMARY | {"deployment": _SUMMARY["deployment"] | dict(found)},
    deployment=pd.DataFrame({"abandoned": [0, 1, 0, 0]}),
    settings={"deployment": "files/old.yaml"},
    account=types.SimpleNamespace(
      ledger=types.SimpleNamespace(participation=claim)
    ),
  )
  return deployment.describe(run)


def test_figures_in_words():
  found = describe()
  assert found.name == "old.yaml"
  facts = found.facts
  assert facts["what it is"] == "Old phones."
  assert facts["simulated clock"] == (
    "2.5 days for 3 rounds, 1.2 a day; in reality 61 s"
  )
  short = describe(found={"days": 54 / 60 / 24}).facts["simulated clock"]
  assert short.startswith("54 minutes for 3 rounds")
  assert facts["abandoned rounds"].startswith("1 of 4.")
  assert (
    "of which 70.0% reported, 10.0% were not needed"
    in (facts["devices selected"])
  )
  assert facts["sessions that began"] == (
    "75.0% finished, 23.0% rejected, 2.0% interrupted"
  )
  assert facts["devices never reached"].startswith("80 of 100 (80.0%)")
  assert facts["sent"] == "1.50MB to devices, 999B from them"
  assert found.classes == [("slow", 0.5, 0.25), ("fast", 0.5, 0.75)]


def test_what_is_enforced_is_not_what_was_measured():
  # In three rounds a separation of two allows two participations.
  assert [bound[1:] for bound in describe().bounds] == [
    ("at least 2", "3"),
    ("at most 2", "1"),
  ]
  measured = {"min_separation": None, "max_participations": 1}
  found = describe(found={"measured": measured})
  assert found.bounds[0][2] == "nobody came twice"


@pytest.mark.parametrize("equal_work", [True, False])
def test_what_dropping_out_may_depend_on(equal_work):
  found = describe(equal_work=equal_work)
  assert found.is_assumed != equal_work
  assert ("By this deployment it does not" in found.assumption) == equal_work
