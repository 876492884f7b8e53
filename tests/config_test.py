"""Tests of configurations: what their fields know, and what they refuse."""

import dataclasses

import numpy as np
import pytest

import tff_fedemb as fe
from tff_fedemb import config
from tff_fedemb import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Base(config.Config):
  """A base.

  Attributes:
    rounds: Rounds of
      training.
  """

  rounds: int = config.field(10, minimum=1, maximum=99)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Derived(_Base):
  """A derived one.

  Attributes:
    scale: A scale.
    kind: A kind.
    kinds: Kinds.
    flag: Yes or no.
    other: A value of no type that a flag has.
  """

  scale: float | None = config.field(None, above=0)
  kind: str = config.field("a", choices={"b": 1, "a": 2})
  kinds: tuple[str, ...] = config.field((), choices=("a", "b"))
  flag: bool = False
  other: dict[str, int] | None = None


def test_fields_know_type_range_and_documentation():
  rounds, scale, kind, kinds, flag, other = config.specs(_Derived)
  assert rounds.documentation == "Rounds of training."
  assert rounds.bounds == {"minimum": 1, "maximum": 99}
  assert (scale.type, scale.optional, scale.default) == (float, True, None)
  assert (kind.type, sorted(kind.choices)) == (str, ["a", "b"])
  assert (kinds.type, flag.type, other.type) == (tuple, bool, object)


def test_numbers_become_pythons():
  made = _Derived(rounds=np.int64(3), scale=np.float32(2), kinds=["a"])
  assert made == _Derived(rounds=3, scale=2.0, kinds=("a",))
  assert type(made.rounds) is int
  assert type(made.scale) is float


def test_what_is_shown_is_what_differs_from_the_defaults():
  assert repr(_Derived()) == "_Derived()"
  made = _Derived(rounds=12, kinds=["a"])
  assert repr(made) == "_Derived(rounds=12, kinds=('a',))"
  assert repr(_Derived(other={})) == "_Derived(other={})"
  assert repr(fe.Backbone(embedding_dim=8)) == "Backbone(embedding_dim=8)"


@pytest.mark.parametrize(
  ("values", "message"),
  [
    ({"rounds": 0}, "rounds must be an integer of at least 1, found 0."),
    ({"rounds": 100}, "rounds must be at most 99, found 100."),
    ({"rounds": None}, "rounds must be given, found nothing."),
    ({"rounds": True}, "rounds must be an integer of at least 1, found True."),
    ({"scale": 0.0}, "scale must be positive, found 0.0."),
    ({"scale": float("nan")}, "scale must be positive, found nan."),
    ({"kind": "c"}, "kind must be one of a, b, found 'c'."),
    ({"kinds": ("c",)}, "kinds must be one of a, b, found 'c'."),
    ({"flag": 1}, "flag must be true or false, found 1."),
  ],
)
def test_refuses(values, message):
  with pytest.raises(errors.FieldError) as error:
    _Derived(**values)
  assert str(error.value) == message
  assert error.value.name == next(iter(values))


def test_fields_of_a_class_that_is_no_dataclass_are_not_lost():
  class Undecorated(_Base):
    margin: float = config.field(0.1, minimum=0)

  with pytest.raises(errors.DataError, match="its margin is no field: write @"):
    Undecorated()

  class OfMethodsAlone(_Base):
    pass

  assert OfMethodsAlone(rounds=3).rounds == 3
