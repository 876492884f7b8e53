"""Tests of how fits on features are typed."""

import dataclasses
import math

import pytest

from tff_fedemb import errors
from tff_fedemb.features import registry
from tff_fedemb.features import settings as feature_settings
from tff_fedemb.features.federated import settings as federated_settings


def _create_method(*items, name="sgd", epsilon=math.inf, **options):
  return feature_settings.CommonConfig(
    output_json="o", **options
  ).create_method(name, "methods", items, epsilons=[epsilon])


@pytest.mark.parametrize(
  "items,found",
  [
    (["steps=7", "momentum=0"], {"steps": 7, "momentum": 0.0}),
    (["batch_size=None"], {"batch_size": None}),
    ([" batch_size = 12"], {"batch_size": 12.0}),
    (["loss=sigmoid"], {"loss": "sigmoid"}),
    (["learning_rate=1e-2"], {"learning_rate": 0.01}),
  ],
)
def test_hyperparameters(items, found):
  method = _create_method(*items)
  assert {name: getattr(method, name) for name in found} == found


@pytest.mark.parametrize(
  "items,options,message",
  [
    (["steps=2.5"], {}, "steps must be an integer of at least 1, found '2.5'"),
    (["steps=None"], {}, "steps must be an integer .* found 'None'"),
    (["momentum=a"], {}, r"momentum must be in \[0, 1\), found 'a'"),
    (["batch_size=nan"], {}, "batch_size must be at least 1, found nan"),
    (["name=newton"], {}, "hyperparameters must be among those of sgd.*'name'"),
    ([], {"epsilon": 101.0, "delta": 0.1}, r"epsilon must be in .* 101"),
    (
      ["batch_size=4"],
      {"protection": federated_settings.UserSettings()},
      "batch_size must not be given",
    ),
  ],
)
def test_mistakes_in_hyperparameters(items, options, message):
  with pytest.raises(errors.FieldError, match=message):
    _create_method(*items, **options)


def test_mistakes_in_hyperparameters_name_the_field_that_they_are_in():
  for method, message in (
    (
      "sgd",
      "methods must fit 'x': steps must be an integer of at least 1, found 0.",
    ),
    # What is no hyperparameter of the method is none of its mistakes.
    ("least_squares", "steps must be an integer of at least 1, found 0."),
  ):
    with (
      pytest.raises(errors.FieldError) as error,
      feature_settings.hyperparameters_in("methods", "fit 'x'", method),
    ):
      _create_method("steps=0")
    assert str(error.value) == message


def test_parse_split():
  assert feature_settings.parse_split(["a=0.3", " b = 7 "]) == {
    "a": 0.3,
    "b": 7.0,
  }
  for texts in (["a"], ["a="], ["=1"], ["a=1", "a=2"]):
    with pytest.raises(errors.FieldError, match="split must have items NAME="):
      feature_settings.parse_split(texts)
  for text in ("a=x", "a=0", "a=nan", "a=inf"):
    with pytest.raises(
      errors.FieldError, match=f"positive shares, found {text}"
    ):
      feature_settings.parse_split([text])


def test_parse_numbers():
  def parse(texts, kind):
    return feature_settings.parse_numbers("numbers", texts, kind)

  assert parse(["inf", "0.5", "2"], float) == (math.inf, 0.5, 2.0)
  assert parse(["3", "1"], int) == (3, 1)
  for texts, kind, message in (
    (["1", "x"], float, "numbers must be numbers, inf .*, found '1,x'"),
    (["1.5"], int, "numbers must be integers .* found '1.5'"),
    (["1", "1"], int, "numbers must be given, each once, found '1,1'"),
    ([], int, "numbers must be given, each once"),
  ):
    with pytest.raises(errors.FieldError, match=message):
      parse(texts, kind)


def test_description_names_every_hyperparameter():
  lines = feature_settings.describe_methods().split(";\n")
  for line, (name, cls) in zip(lines, registry.METHODS.items(), strict=True):
    assert line.startswith(f"{name}: ")
    for field in dataclasses.fields(cls):
      assert f"{field.name}={field.default}" in line
