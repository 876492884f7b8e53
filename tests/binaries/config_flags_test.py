"""Tests of flags made from configurations."""

import dataclasses
import sys

from absl import flags
from absl.testing import flagsaver
import pytest

from binaries import config_flags
from tff_fedemb import config
from tff_fedemb import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Config(config.Config):
  """One.

  Attributes:
    of_test_rounds: Rounds of training.
    of_test_length: How long.
    of_test_kind: What kind.
    scale: How large.
    of_test_names: Which ones.
    data: No flag.
  """

  of_test_rounds: int = config.field(10, minimum=1)
  of_test_length: int = 3
  of_test_kind: str = config.field("a", choices=("b", "a"))
  scale: float | None = config.field(None, above=0)
  of_test_names: tuple[str, ...] = ("a", "b")
  data: dict[str, int] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Other(config.Config):
  """Another.

  Attributes:
    of_test_bands: Number of bands.
    of_test_length: How long.
    scale: How large.
  """

  of_test_bands: int = config.field(2, minimum=1)
  of_test_length: int = 4
  scale: float | None = config.field(None, above=0)


_FLAGS = config_flags.ConfigFlags(
  _Config, rename={"scale": "of_test_scale"}, skip=("of_test_length",)
)
_CHOICE = config_flags.ChoiceFlags(
  "aggregator",
  {"one": _Other, "two": _Config},
  rename={"scale": "of_test_size", "of_test_rounds": "of_test_steps"},
  skip=("of_test_kind", "of_test_names"),
)


@pytest.fixture(autouse=True)
def parsed_flags():
  with flagsaver.flagsaver():
    if not flags.FLAGS.is_parsed():
      flags.FLAGS(["test"])
    yield


def test_flags_are_of_the_module_that_defines_them():
  names = {
    flag.name
    for flag in flags.FLAGS.get_key_flags_for_module(sys.modules[__name__])
  }
  assert {*_FLAGS.names, *_CHOICE.names} <= names
  assert set(_FLAGS.names) == {
    "of_test_rounds",
    "of_test_kind",
    "of_test_scale",
    "of_test_names",
  }


def test_help_is_the_documentation():
  assert flags.FLAGS["of_test_kind"].help == "What kind: a, b."
  assert flags.FLAGS["of_test_bands"].help == (
    "Number of bands (aggregator one) [2]."
  )
  assert flags.FLAGS["of_test_length"].help == (
    "How long (aggregator one, two) [one 4, two 3]."
  )
  assert flags.FLAGS["of_test_size"].help == "How large (aggregator one, two)."


def test_configuration_of_the_flags():
  assert _FLAGS.create() == _Config()
  assert flags.FLAGS["of_test_names"].value == ["a", "b"]
  with flagsaver.flagsaver(of_test_scale=2.0):
    assert _FLAGS.create(data={}) == _Config(scale=2.0, data={})


def test_error_names_the_flag():
  with (
    flagsaver.flagsaver(of_test_scale=-2.0),
    pytest.raises(errors.FieldError) as error,
  ):
    _FLAGS.create()
  assert config_flags.flag_name("of_test_kind") == "--of_test_kind"
  assert error.value.name == "--of_test_scale"


def test_choice():
  assert _CHOICE.create("one") == _Other()
  with flagsaver.flagsaver(of_test_bands=3):
    assert _CHOICE.create("one", scale=1.0) == _Other(
      of_test_bands=3, scale=1.0
    )
    with pytest.raises(errors.FieldError) as error:
      _CHOICE.create("two")
  assert str(error.value) == (
    "--of_test_bands must not be set with aggregator two, which has no use for"
    " it, found 3."
  )
