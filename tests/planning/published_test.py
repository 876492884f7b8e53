"""Tests of the authors' table: every printed digit, and the strict reading."""

import pytest

from tff_fedemb.accounting import epsilon as epsilon_lib
from tff_fedemb.planning import published


@pytest.fixture(name="rows", scope="module")
def _rows():
  return {row.published.algorithm: row for row in published.compute_table()}


@pytest.mark.parametrize(
  ("algorithm", "noise_multiplier", "epsilon", "zcdp", "strict", "poisson"),
  [
    ("DP-FedAvg", 0.96, "5.62", None, 35.55, 25.03),
    ("DP-FedEmb", 1.28, "3.90", None, 14.50, 10.59),
    ("DP-FTRL-FedEmb", 16.64, "9.67", "1.28", 9.67, None),
  ],
)
def test_rows(
  rows, algorithm, noise_multiplier, epsilon, zcdp, strict, poisson
):
  row = rows[algorithm]
  assert row.report.noise_multiplier == pytest.approx(
    noise_multiplier, rel=1e-12
  )
  assert f"{row.published_epsilon:.2f}" == epsilon
  assert row.published.printed_epsilon == epsilon
  assert row.published.printed_zcdp == zcdp
  assert (None if row.report.zcdp is None else f"{row.report.zcdp:.2f}") == zcdp
  assert round(row.report.epsilon, 2) == strict
  found = row.poisson_epsilon
  assert (None if found is None else round(found, 2)) == poisson


def test_readings_are_named(rows):
  fedemb = rows["DP-FedEmb"]
  assert "Delta = 1 C" in fedemb.published_reading
  assert epsilon_lib.VIRTUAL_CLIENT_UNIT in fedemb.published_reading
  assert fedemb.report.neighboring_relation == "replace one user"
  assert fedemb.report.sensitivity_in_clip_norms == 2
  ftrl = rows["DP-FTRL-FedEmb"]
  assert "Delta = 2 C: protects a user" in ftrl.published_reading
  assert ftrl.published_epsilon == ftrl.report.epsilon
  assert ftrl.report.max_participations == 11
