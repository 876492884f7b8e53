"""Tests of what a round tells."""

import numpy as np
import tqdm

from tff_fedemb.records import metrics
from tff_fedemb.rounds import round_reports
from tff_fedemb.runtime import client_error


def _describe(reports, measured, skipped=()):
  clients = [np.array([0, 1]), np.array([2])]
  return reports.describe(3, measured, clients, ["0,1", "2"], skipped)


def test_a_round_is_counted_and_what_it_left_out_is_told():
  said = []
  reports = round_reports.RoundReports(10, said.append)
  measured = {"client_work": {"num_skipped_examples": 4, "loss": 0.5}}
  skipped = [client_error.ClientError("2", ValueError("bad image"))]
  report = _describe(reports, measured, skipped)
  assert report[metrics.NUM_SKIPPED_CLIENTS] == 1
  assert report[metrics.NUM_ACCEPTED] == 1
  assert report[metrics.NUM_USERS] == 3
  assert report["client_work/loss"] == 0.5
  first, second = said
  assert first.startswith("round 3: skipped 1 of 2 virtual clients")
  assert second == "round 3: left out 4 examples that cannot be decoded"


def test_an_evaluated_round_is_a_line_with_the_time_left():
  said = []
  reports = round_reports.RoundReports(10, said.append)
  report = _describe(reports, {"client_work": {"loss": 0.5}})
  with tqdm.tqdm(disable=True) as bar:
    reports.show(bar, report, 3, 6.0)
    assert not said
    report[metrics.EPSILON] = 2.5
    report[metrics.RECALL_PREFIX + "0.01"] = 0.25
    reports.show(bar, report, 4, 8.0)
  # Six rounds of two seconds are left.
  assert said == [
    "round 4/10  loss 0.500  rejected 0 of 2  recall@0.01 0.250"
    "  epsilon 2.5  00:12 left"
  ]


def test_the_loss_of_nobody_is_no_number():
  said = []
  reports = round_reports.RoundReports(10, said.append)
  measured = {"client_work": {"loss": 0.0, "num_rejected_clients": 2}}
  report = _describe(reports, measured) | {metrics.EPSILON: 1.0}
  with tqdm.tqdm(disable=True) as bar:
    reports.show(bar, report, 1, 1.0)
  assert "loss nan  rejected 2 of 2" in said[0]


def test_an_update_that_is_not_finite_is_told():
  said = []
  reports = round_reports.RoundReports(10, said.append)
  for non_finite in (0, 1):
    _describe(reports, {"finalizer": {"update_non_finite": non_finite}})
  (line,) = said
  assert line.startswith("WARNING: round 3: the mean update is not finite")
