"""Tests of extrapolation against the published table."""

import json

import pytest

from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import poisson
from tff_fedemb.privacy import epsilon as epsilon_lib
from tff_fedemb.privacy import extrapolation

_FIXED_SIZE = fixed_size.FixedSize(10_000, 64 * 32, users_per_client=32)
_POISSON = poisson.Poisson(10_000, 2_048.0)


def test_single_user_poisson_has_one_reading():
  result = extrapolation.extrapolate(
    rounds=20, noise_multiplier=0.03, participation=_POISSON
  )
  assert result.authors.epsilon == result.user_level.epsilon
  assert result.user_level.accountant == "pld"
  assert result.user_level.protects.startswith("one user: a user's slot stays")
  assert not any("authors' reading" in text for text in result.assumptions)


def test_json_names_both_readings():
  result = extrapolation.extrapolate(
    rounds=5, noise_multiplier=0.0, participation=_FIXED_SIZE
  )
  values = json.loads(json.dumps(result.to_json(), allow_nan=False))
  assert values["is_extrapolation"] is True
  assert values["user_level"]["epsilon"] == "inf"
  assert values["authors"]["epsilon"] == "inf"
  assert values["authors"]["protects"] == epsilon_lib.VIRTUAL_CLIENT_UNIT
  assert values["participation"]["kind"] == "fixed_size"
  assert any("10,000,000 users drawn unif" in a for a in values["assumptions"])
  # 1e-7 for ten million users: the published setting deserves the remark.
  assert any("delta" in text for text in values["assumptions"])


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"num_users": 131_071}, "users_per_round must be at most num_users"),
    ({"cohort_factor": 1.0001}, "users_per_round must be an integer"),
    (
      dict(participation=_POISSON, num_users=10_000, cohort_factor=1)
      | dict(accountants=("pld",)),
      "accountant must be rdp where",
    ),
  ],
)
def test_extrapolate_refuses(change, message):
  settings = {
    "rounds": 1,
    "noise_multiplier": 0.02,
    "participation": _FIXED_SIZE,
  }
  with pytest.raises(ValueError, match=message):
    extrapolation.extrapolate(**(settings | change))
