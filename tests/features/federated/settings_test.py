"""Tests of what may be asked for where users are protected."""

import pytest

from tff_fedemb import errors
from tff_fedemb.features.federated import settings


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"runtime": "ray"}, "runtime must be one of"),
    ({"example_weighting": "max"}, "example_weighting must be one of"),
    ({"user_clip_norm": 0.0}, "user_clip_norm must be positive"),
    (
      {"user_clip_norm": 2.0, "example_weighting": "mean"},
      "user_clip_norm must be at most 1",
    ),
  ],
)
def test_refuses(options, message):
  with pytest.raises(errors.FieldError, match=message):
    settings.UserSettings(**options)
