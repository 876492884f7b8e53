"""Tests of classes by name, and of one's own by `module:Class`."""

import dataclasses

import pytest

from tff_fedemb import errors
from tff_fedemb import registry
from tff_fedemb.spec import array_task
from tff_fedemb.spec import task as task_lib


class Part:
  """The base class of all parts."""


@dataclasses.dataclass(frozen=True)
class Known(Part):
  """A part that is registered."""

  size: int
  depth: int = 3


@dataclasses.dataclass(frozen=True)
class Own(Part):
  """A part of one's own."""

  width: float = 0.5


_OWN = f"{__name__}:Own"
_PARTS = registry.Registry(Part, {"known": Known})


def test_the_registered_and_ones_own():
  assert _PARTS["known"] is Known
  assert _PARTS[_OWN] is Own
  assert "known" in _PARTS and _OWN in _PARTS and "other" not in _PARTS
  assert list(_PARTS) == ["known"]
  assert _PARTS.name_of(Known(2)) == "known" and _PARTS.name_of(Own) == _OWN
  with pytest.raises(KeyError, match="other"):
    _ = _PARTS["other"]


@pytest.mark.parametrize(
  ("name", "message"),
  [
    ("no_such:Part", "no_such:Part must be a module, .* No module named"),
    (f"{__name__}:Other", "no attribute 'Other'"),
    (":Part", ":Part must be a module, a colon and a name"),
    ("collections:deque", "must be a subclass of .*registry_test.Part"),
    ("json:dumps", "must be a subclass of"),
  ],
)
def test_what_is_no_part_is_one_line(name, message):
  with pytest.raises(errors.DataError, match=message):
    _ = name in _PARTS


def test_who_could_not_be_imported_cannot_be_stored():
  class Local(Known):
    """Nothing that another process could import."""

  with pytest.raises(TypeError, match="Local must be registered"):
    _PARTS.name_of(Local(2))


@pytest.mark.parametrize(
  ("name", "fields", "message"),
  [
    ("other", {}, "part must be one of known, found 'other'"),
    (None, {}, "part must be one of known, found None"),
    ("known", {}, "size must be given with known, found nothing"),
    ("known", {"size": None}, "size must be given with known"),
    ("known", {"size": 1, "width": 2}, "width must not be given with part kn"),
    (
      _OWN,
      {"size": 1},
      "size must not be given with part .*:Own, which has no",
    ),
  ],
)
def test_fields_that_are_not_the_parts(name, fields, message):
  with pytest.raises(errors.FieldError, match=message):
    _PARTS.create(name, **fields)


def test_files_name_a_class_as_before_its_module_moved():
  name = "tff_fedemb.run.array_task:ArrayTask"
  assert registry.import_name(name) is array_task.ArrayTask
  assert task_lib.SOURCES.name_of(array_task.ArrayTask) == name
