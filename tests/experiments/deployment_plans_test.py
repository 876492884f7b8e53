"""Tests of plans for a deployment."""

import json
import re

import pytest

from experiments import deployment_plans as plans
from tests.privacy import gaussian
from tff_fedemb import errors
from tff_fedemb.deployment import simulation

# 30 rounds of 100 users that are always there, one each minute.
_IDEAL = {
  "deployment": "ideal",
  "num_users": 100,
  "rounds": 30,
  "noise_on_mean": 0.5,
  "clients_per_round": ("5", "10"),
  "over_selections": ("1",),
  "deadlines_minutes": ("60",),
  "separation_shares": ("0.5",),
}
_DELTA = 1e-3


def run(tmp_path, **values):
  path = tmp_path / "plans.json"
  config = plans.PlansConfig(
    **(_IDEAL | {"delta": _DELTA, "output_json": str(path)} | values)
  )
  plans.execute(config)
  return json.loads(path.read_text())


def test_a_plan_costs_what_its_participations_cost(tmp_path, capsys):
  found = run(tmp_path, days=1.0, output_png=str(tmp_path / "plans.png"))
  small, large = found["plans"]
  # Half of the users wait: separations of 10 and 5 rounds, 3 and 6 rounds each.
  assert (small["min_separation"], large["min_separation"]) == (10, 5)
  assert (small["participations"], large["participations"]) == (3, 6)
  # The noise on the mean is the same: noise multiplier / reports.
  assert (small["noise_multiplier"], large["noise_multiplier"]) == (2.5, 5.0)
  for row in small, large:
    releases = [row["noise_multiplier"]] * row["participations"]
    epsilon = gaussian.exact_epsilon(releases, _DELTA)
    assert row["epsilon"] == pytest.approx(epsilon, rel=1e-6)
    # The last of the 30 begins after 29 minutes, and takes no time.
    assert row["days"] == pytest.approx(29 / 1440, rel=1e-6)
    assert row["reported"] == 1 and row["abandoned"] == 0
  assert found["recommended"] == large
  assert (tmp_path / "plans.png").read_bytes().startswith(b"\x89PNG")
  printed = capsys.readouterr().out
  assert "Of 2 plans 2 keep to 1 days. The cheapest of them" in printed
  assert re.search(r"^ +10 .* <-$", printed, re.MULTILINE)
  assert "--clients_per_round=10 --noise_multiplier=5" in printed


def test_days_are_extrapolated_but_for_the_recommended_plan(tmp_path):
  found = run(tmp_path, days=1.0, simulated_days=0.01)
  assert [row["is_complete"] for row in found["plans"]] == [False, True]
  assert found["recommended"]["clients_per_round"] == 10
  for row in found["plans"]:
    # Until 0.01 days are over, 15.4 minutes, 16 rounds have been.
    assert row["days"] == pytest.approx(29 / 1440, rel=0.1)


def test_a_plan_that_comes_to_no_end(tmp_path, monkeypatch, capsys):
  def fail(self):
    raise errors.DataError("nobody may take part any more.")

  monkeypatch.setattr(simulation.Simulation, "next_round", fail)
  picture = tmp_path / "plans.png"
  found = run(tmp_path, days=9.0, output_png=str(picture))
  assert [row["days"] for row in found["plans"]] == ["inf", "inf"]
  assert found["recommended"] is None and picture.exists()
  assert "None of 2 plans keeps to 9 days; the nearest" in (
    capsys.readouterr().out
  )


def test_none_may_be_good_enough(tmp_path, capsys):
  found = run(tmp_path, target_epsilon=1e-3)
  assert found["recommended"] is None
  assert "None of 2 plans keeps to epsilon 0.001; the nearest" in (
    capsys.readouterr().out
  )


@pytest.mark.parametrize(
  ("values", "message"),
  [
    ({}, "days must be given"),
    ({"days": 1.0, "target_epsilon": 1.0}, "days must be given"),
    ({"days": 1.0, "clients_per_round": ("1.5",)}, "clients_per_round must be"),
    ({"days": 1.0, "clients_per_round": ("101",)}, "clients_per_round must be"),
    ({"days": 1.0, "over_selections": ("x",)}, "over_selections must be"),
    ({"days": 1.0, "separation_shares": ("2",)}, "separation_shares must be"),
    ({"days": 1.0, "mechanism": "coins"}, "mechanism must be one of"),
  ],
)
def test_mistakes(values, message):
  with pytest.raises(errors.FieldError, match=re.escape(message)):
    plans.PlansConfig(**(_IDEAL | values))
