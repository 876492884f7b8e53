"""Tests of what mechanisms have in common."""

import pytest

from tests.aggregators import cases
from tff_fedemb import errors
from tff_fedemb.aggregators import mechanism
from tff_fedemb.aggregators import registry


@pytest.mark.parametrize(
  ("name", "options", "message"), cases.params("mistakes")
)
def test_mistakes_are_named(name, options, message):
  with pytest.raises(errors.FieldError, match=message):
    registry.AGGREGATORS[name](**{"clients_per_round": 100, **options}).create(
      mechanism.Schedule(rounds=9, min_separation=4)
    )
