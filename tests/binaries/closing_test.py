"""Tests of how much programs say at their ends, and in their help."""

import pathlib
import re

import pytest

from tests.binaries import closing
from tests.binaries import programs
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.accounting import tuning as tuning_lib
from tff_fedemb.participation import fixed_size
from tff_fedemb.report import account_output

_PLAN = "--mechanism=gaussian --num_users=1000 --users_per_round=50 --rounds=40"


@pytest.mark.parametrize(
  ("words", "figure", "breaks"),
  [
    (
      "epsilon --participation=poisson --noise_multiplier=4",
      r"epsilon = 0\.\d{4} at delta = 0\.0005 \(pld\), 40 rounds",
      "if anyone learns who took part when",
    ),
    (
      "epsilon --participation=min_separation --noise_multiplier=0.02"
      " --users_per_client=5 --delta=0.2",
      r"epsilon = [\d.]+ at delta = 0\.2 \(gaussian\), 40 rounds\nzCDP    = ",
      "if a user is in more rounds than these",
    ),
    (
      "epsilon --participation=check_ins --noise_multiplier=4",
      r"epsilon = [\d.]+ at delta = 0\.0005 \(gaussian\), 40 rounds\nzCDP  ",
      "if a user's data decide whether their device drops out",
    ),
    (
      "calibrate --participation=poisson --target_epsilon=2 --accountant=rdp",
      r"[\d.]+ is the smallest noise_multiplier for epsilon <= 2\nepsilon = 1",
      "if anyone learns who took part when",
    ),
    (
      "extrapolate --participation=fixed_size --noise_multiplier=1"
      " --users_per_client=5 --extrapolated_num_users=10000",
      "EXTRAPOLATION, not the cost of the run: 40 rounds at noise multipli",
      None,
    ),
  ],
)
def test_an_account_is_eight_lines_unless_it_is_to_explain(
  words, figure, breaks
):
  flags = (*words.split(), *_PLAN.split())
  output = programs.succeed("account", *flags)
  closing.check_size(output)
  assert re.match(figure, output), output
  if breaks is not None:
    told = " ".join(output.split())
    assert " For one user: " in told
    assert f" It breaks {breaks}" in told
  explained = programs.succeed("account", *flags, "--explain")
  assert len(explained) > 2 * len(output)


def test_a_tuning_is_eight_lines():
  ledger = ledger_lib.create_ledger(
    fixed_size.FixedSize(1_000, 50),
    composition.Noise(4.0),
    40,
    delta=1e-4,
    accountants=("rdp",),
  )
  privacy = tuning_lib.create_report(
    tuning_lib.RepeatAndSelect(10.0), ledger, chosen_by_others=True
  )
  rates = {f"{name}_learning_rate": 0.0125 for name in ("client", "server")}
  report = {
    "best": {"hyperparameters": rates, "validation": 0.25, "test": 0.125},
    "privacy": privacy,
    "warnings": ["something deserves a second look " * 4] * 4,
  }
  text = account_output.tell_tuning(report, pathlib.Path("runs/tuning"))
  closing.check_size(text)
  assert "client_learning_rate 0.0125" in text
  assert f"epsilon = {privacy['epsilon']:.4g} at delta = 0.0001 (rdp)" in text
  assert "For one user: replace one user." in text
  assert "warning: there are 3 more" in text
  # Nothing was drawn, so that nothing was trained.
  report = {"best": None, "privacy": None, "warnings": ["no trial was drawn"]}
  told = account_output.tell_tuning(report, pathlib.Path("x")).splitlines()
  assert told[0] == "warning: no trial was drawn"
  assert told[1].startswith("Written to x, of which the guarantee covers")


def test_short_help_fits_two_screens_and_names_every_flag():
  short = programs.call("run_federated", "--helpshort").output
  full = programs.call("run_federated", "--helpfull").output
  assert len(short.splitlines()) <= 100
  assert max(map(len, short.splitlines())) <= 80
  flags = re.findall(r"^  --(?:\[no\])?(\w+)$", full, re.MULTILINE)
  assert len(flags) > 80
  assert [f for f in flags if not re.search(rf"--{f}\b", short)] == []
