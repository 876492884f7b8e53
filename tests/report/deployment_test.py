"""Tests of what a report says of devices that came and went."""

import types

import pandas as pd
import pytest

from tff_fedemb.participation import check_ins
from tff_fedemb.report import deployment

_FOUND = {
  "days": 2.5,
  "rounds_released": 3,
  "selected": 50,
  "reported": 35,
  "aborted": 5,
  "late": 4,
  "interrupted": 1,
  "dropped": 5,
  "measured": {"min_separation": 3, "max_participations": 1},
}


def describe(*, found=(), **options):
  claim = check_ins.CheckIns(100, 10, min_separation=2, **options)
  run = types.SimpleNamespace(
    summary={"deployment": _FOUND | dict(found)},
    deployment=pd.DataFrame({"abandoned": [0, 1, 0, 0]}),
    settings={"deployment": "files/old.yaml"},
    account=types.SimpleNamespace(
      ledger=types.SimpleNamespace(participation=claim)
    ),
  )
  return deployment.describe(run)


def test_shares_and_bounds():
  found = describe()
  assert (found["name"], found["num_rounds"]) == ("old.yaml", 4)
  assert list(found["fates"].values()) == [0.7, 0.1, 0.08, 0.02, 0.1]
  # What is enforced is not what was measured: in three rounds a separation of
  # two allows two participations.
  assert [bound[1:] for bound in found["bounds"]] == [
    ("at least 2", "3"),
    ("at most 2", "1"),
  ]
  measured = {"min_separation": None, "max_participations": 1}
  found = describe(found={"measured": measured, "days": 54 / 60 / 24})
  assert found["bounds"][0][2] == "nobody came twice"
  assert found["simulated"] == "54 minutes"


@pytest.mark.parametrize("equal_work", [True, False])
def test_what_dropping_out_may_depend_on(equal_work):
  found = describe(equal_work=equal_work)
  assert found["is_assumed"] != equal_work
  said = "By this deployment it does not" in found["assumption"]
  assert said == equal_work
