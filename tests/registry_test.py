"""Tests of classes by name, and of one's own by `module:Class`."""

import collections

import pytest

from tff_fedemb import errors
from tff_fedemb import registry

_OWN = "collections:OrderedDict"


@pytest.fixture(name="known")
def _known():
  return registry.Registry(dict, {"count": collections.Counter})


def test_the_registered_and_ones_own(known):
  assert known["count"] is collections.Counter
  assert known[_OWN] is collections.OrderedDict
  assert "count" in known and _OWN in known and "other" not in known
  assert list(known) == ["count"]
  with pytest.raises(KeyError, match="other"):
    known["other"]


@pytest.mark.parametrize(
  ("name", "message"),
  [
    ("no_such:Part", "no_such:Part must be the module .* No module named"),
    ("collections:Part", "no attribute 'Part'"),
    (":Part", ":Part must be the module and the name of a class"),
    ("collections:deque", "must be a subclass of builtins.dict"),
    ("collections:namedtuple", "must be a subclass of builtins.dict"),
  ],
)
def test_what_is_no_part_is_one_line(known, name, message):
  with pytest.raises(errors.DataError, match=message):
    _ = name in known


def test_names_lead_back(known):
  assert known.name_of(collections.Counter()) == "count"
  assert known.name_of(collections.OrderedDict()) == _OWN

  class Local(dict):
    """Nothing that another process could import."""

  with pytest.raises(TypeError, match="Local must be registered"):
    known.name_of(Local())
