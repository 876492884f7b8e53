"""How to fit a private classifier on features, as it was typed."""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import math
import re
import types
import typing

from experiments import command_line
from tff_fedemb import checks
from tff_fedemb.features import budget as budget_lib
from tff_fedemb.features import method as method_lib
from tff_fedemb.features import registry
from tff_fedemb.features.federated import settings as federated_methods

_KINDS = {
  int: "an integer",
  float: "a number",
  str: "a word",
  types.NoneType: "None",
}


# What is protected.
UNITS = ("example", "user")


class HyperparameterError(command_line.UsageError):
  """A hyperparameter that a method does not have, or that does not fit."""


@dataclasses.dataclass(frozen=True)
class UserSettings:
  """How to fit where users are protected, by a federated computation.

  Attributes:
    example_weighting: One of `federated_methods.EXAMPLE_WEIGHTINGS`.
    user_clip_norm: Bound of what a user sends in a round.
    runtime: A key of `runtime.RUNTIMES`.

  Raises:
    ValueError: If a value is out of its range.
  """

  example_weighting: str = "sum"
  user_clip_norm: float = 1.0
  runtime: str = "in_process"

  def __post_init__(self):
    federated_methods.UserSettings(**dataclasses.asdict(self))


def create_user_settings(unit: str, **options) -> UserSettings | None:
  """Creates the settings of a unit of privacy; examples have none.

  Args:
    unit: One of `UNITS`.
    **options: Of `UserSettings`, `None` for the default.

  Raises:
    ValueError: If the unit is unknown, or has no such options, or one is out of
      its range.
  """
  checks.check_choice("unit", unit, UNITS)
  given = {name: value for name, value in options.items() if value is not None}
  if unit == "user":
    return UserSettings(**given)
  for name, value in given.items():
    raise ValueError(
      f"{name} must be given with --unit=user only, found {value!r}."
    )
  return None


@dataclasses.dataclass(frozen=True)
class FitSettings:
  """How to fit.

  Attributes:
    method: The method with its hyperparameters.
    epsilon: Target, positive; infinity for no noise.
    delta: In (0, 1); may be `None` without noise.
    clip_norm: Bound of the L2 norm of features.
    scaling: One of `examples.SCALINGS`.
    split: Shares of the budget by name of release, instead of the method's.
    seed: Of noise and sampling; `None` for the operating system's entropy.
    users: How to protect users; `None` where examples are protected.

  Raises:
    ValueError: If epsilon, delta or seed is out of its range, or the method is
      not for users, or has a seed with them: their noise is of no seed.
  """

  method: method_lib.Method
  epsilon: float
  delta: float | None = None
  clip_norm: float = 1.0
  scaling: str = "clip"
  split: Mapping[str, float] | None = None
  seed: int | None = None
  users: UserSettings | None = None

  def __post_init__(self):
    budget_lib.check_target(self.epsilon, self.delta)
    if self.delta is not None:
      checks.check_delta(self.delta)
    elif self.epsilon != math.inf:
      raise ValueError(
        "delta must be given where epsilon is finite, found nothing."
      )
    if self.seed is not None:
      checks.check_integer("seed", self.seed, minimum=0)
    if self.users is None:
      return
    with hyperparameter_errors(self.method):
      federated_methods.check_method(self.method)
    if self.seed is not None:
      raise ValueError(
        "seed must not be given with --unit=user, where noise cannot be"
        f" repeated, found {self.seed}."
      )


def parse_pairs(name: str, texts: Sequence[str]) -> dict[str, str]:
  """Splits `key=value` items of a flag.

  Args:
    name: Of the flag.
    texts: The items.

  Raises:
    ValueError: If an item has another form, or a key comes twice.
  """
  pairs = {}
  for text in texts:
    key, equals, value = (part.strip() for part in text.partition("="))
    if not (key and equals and value) or key in pairs:
      raise ValueError(
        f"{name} must have items NAME=VALUE, no name twice, found {text!r}."
      )
    pairs[key] = value
  return pairs


def parse_split(texts: Sequence[str]) -> dict[str, float]:
  """Returns shares by name of release.

  Args:
    texts: Items such as 'covariance=0.3'.

  Raises:
    ValueError: If a share is no positive number.
  """
  split = {}
  for name, text in parse_pairs("split", texts).items():
    try:
      split[name] = float(text)
    except ValueError:
      split[name] = math.nan
    if not 0 < split[name] < math.inf:
      raise ValueError(f"split must have positive shares, found {name}={text}.")
  return split


def parse_epsilons(texts: Sequence[str]) -> tuple[float, ...]:
  """Returns epsilons, ascending.

  Raises:
    ValueError: If a text is no number.
  """
  try:
    return tuple(sorted(float(text) for text in texts))
  except ValueError:
    raise ValueError(
      "epsilons must be numbers with commas between, inf for no noise, found"
      f" {','.join(texts)!r}."
    ) from None


def parse_seeds(texts: Sequence[str]) -> tuple[int, ...]:
  """Returns seeds.

  Raises:
    ValueError: If a text is no integer.
  """
  try:
    return tuple(int(text) for text in texts)
  except ValueError:
    raise ValueError(
      f"seeds must be integers with commas between, found {','.join(texts)!r}."
    ) from None


def create_method(name: str, pairs: Mapping[str, str]) -> method_lib.Method:
  """Creates a method from what was typed.

  Args:
    name: A key of `registry.METHODS`.
    pairs: Texts by name of hyperparameter.

  Raises:
    HyperparameterError: If a hyperparameter is unknown or out of its range.
    ValueError: If the method is unknown.
  """
  if name not in registry.METHODS:
    return registry.create_method(name)
  cls = registry.METHODS[name]
  hints = typing.get_type_hints(cls)
  values = {}
  for hyperparameter, text in pairs.items():
    if hyperparameter not in cls.hyperparameter_names():
      raise HyperparameterError(
        f"hyperparameters of {name} must be among"
        f" {cls.hyperparameter_names()}, found {hyperparameter!r}."
      )
    hint = hints[hyperparameter]
    kinds = typing.get_args(hint) or (hint,)
    try:
      values[hyperparameter] = _parse_value(text, kinds)
    except ValueError as error:
      raise HyperparameterError(f"{hyperparameter} {error}") from error
  try:
    return registry.create_method(name, **values)
  except ValueError as error:
    raise HyperparameterError(str(error)) from error


def _parse_value(text: str, kinds: Sequence[type]) -> int | float | str | None:
  if types.NoneType in kinds and text.lower() == "none":
    return None
  for kind in (int, float, str):
    if kind in kinds:
      with contextlib.suppress(ValueError):
        return kind(text)
  words = " or ".join(_KINDS[kind] for kind in kinds)
  raise ValueError(f"must be {words}, found {text!r}.")


@contextlib.contextmanager
def hyperparameter_errors(method: method_lib.Method) -> Iterator[None]:
  """Makes a `ValueError` about a hyperparameter a `HyperparameterError`.

  Args:
    method: Whose hyperparameters there may be errors in.
  """
  try:
    yield
  except ValueError as error:
    if re.match(r"\w*", str(error))[0] in method.hyperparameter_names():
      raise HyperparameterError(str(error)) from error
    raise


@contextlib.contextmanager
def hyperparameters_from(flag: str) -> Iterator[None]:
  """Says of mistakes in hyperparameters which flag they were in.

  Args:
    flag: What the error begins with, such as '--flag must be ...'.
  """
  try:
    yield
  except HyperparameterError as error:
    raise command_line.UsageError(f"{flag}: {error}") from error


def method_names(unit: str) -> list[str]:
  """Returns the methods that can protect a unit, one of `UNITS`."""
  if unit == "user":
    return [
      name
      for name, cls in registry.METHODS.items()
      if cls in federated_methods.METHODS
    ]
  return list(registry.METHODS)


def describe_methods() -> str:
  """Returns the hyperparameters of every method and their defaults."""
  lines = []
  for name, cls in registry.METHODS.items():
    defaults = ", ".join(
      f"{field.name}={field.default}" for field in dataclasses.fields(cls)
    )
    lines.append(f"{name}: {defaults}")
  return ";\n".join(lines)
