"""Settings of private fits on features, as a user types them.

`runs` derives the settings of one fit from them, `sweeps` those of many.
"""

import dataclasses
from typing import Any

from tff_fedemb import checks
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb import registry as registry_lib
from tff_fedemb import runtime as runtime_lib
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import method as method_lib
from tff_fedemb.features import registry


@dataclasses.dataclass(frozen=True, kw_only=True)
class Protection(config.Config):
  """Protection of one unit: examples or users."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExampleSettings(Protection):
  """Protection of examples.

  Attributes:
    seed: Seed of the noise, for repeatable experiments. Anyone who knows it can
      remove the noise, so no epsilon is claimed [secret].
  """

  seed: int | None = config.field(None, minimum=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class UserSettings(Protection):
  """Protection of users.

  Attributes:
    user_clip_norm: Largest norm of the statistics that a user sends in a round;
      1 is what one example of full norm contributes.
    runtime: Runtime of the rounds.
  """

  user_clip_norm: float = config.field(
    1.0, minimum=checks.MIN_CLIP_NORM, maximum=checks.MAX_CLIP_NORM
  )
  runtime: str = config.field("in_process", choices=runtime_lib.RUNTIMES)


UNITS: registry_lib.Registry[Protection] = registry_lib.Registry(
  Protection, {"example": ExampleSettings, "user": UserSettings}, kind="unit"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CommonConfig(config.Config):
  """Settings that a fit and a sweep of fits share.

  Attributes:
    delta: Delta of the guarantee, below one over the number of training
      examples, or of users with unit user (not needed without noise).
    num_classes: Classes [1 + the largest label of both files, assumed to be
      public].
    clip_norm: Bound of the L2 norm of a feature vector; longer ones are scaled
      down to it.
    output_json: File for the result, in a directory that exists.
    train: Features to fit on.
    test: Features to test on.
    tuning_share: Share of train (of its users, if it has any) that is held out
      and tested on instead of test. A choice by these accuracies is not private
      for the held-out examples: leave them out of later fits, or say so.
    overwrite: Whether to replace files that exist.
    protection: Protected unit, where user stands for all examples of a user
      (by a federated fit on training features with users, whose noise has no
      seed).
  """

  delta: float | None = config.field(None, **checks.DELTA_RANGE)
  num_classes: int | None = config.field(None, minimum=2)
  clip_norm: float = config.field(1.0, **examples_lib.BOUND_RANGE)
  output_json: str
  train: str
  test: str | None = None
  tuning_share: float | None = config.field(None, above=0, below=1)
  overwrite: bool = False
  protection: Protection = config.part(
    ExampleSettings(), registry=UNITS, flag="unit"
  )

  def __post_init__(self):
    """Checks that either `test` or `tuning_share` is given."""
    super().__post_init__()
    checks.check_one_of(test=self.test, tuning_share=self.tuning_share)

  @property
  def users(self) -> UserSettings | None:
    """Protection of users; `None` if examples are protected."""
    if isinstance(self.protection, UserSettings):
      return self.protection
    return None

  @property
  def seed(self) -> int | None:
    """Seed of the noise; `None` for secret noise."""
    return getattr(self.protection, "seed", None)

  def create_method(self, field: str, text: str) -> method_lib.Method:
    """Creates a method, which can protect the unit.

    Args:
      field: Field that the text is from, for errors.
      text: A key of `registry.METHODS`, with :NAME=VALUE for each
        hyperparameter; a value of none is the default.

    Returns:
      The method; hyperparameters that are not named have their defaults.

    Raises:
      errors.FieldError: If the method or a hyperparameter is unknown, a value
        is out of its range, or the method cannot protect users.
    """
    name, *items = text.split(":")
    checks.check_choice(field, name, self.method_names)
    specs = config.specs(registry.METHODS[name])
    types = {spec.name: spec.type for spec in specs}
    values: dict[str, Any] = {}
    for item in items:
      key, _, value = map(str.strip, item.partition("="))
      if not (key and value) or key in values:
        must = "have hyperparameters NAME=VALUE, no name twice"
        raise errors.FieldError(field, must, repr(item))
      values[key] = None
      if value.lower() != "none":
        values[key] = parse(value, types.get(key, str))
    method = registry.METHODS.create(name, **values)
    if self.users:
      check_method_of_users(method)
    return method

  @property
  def method_names(self) -> list[str]:
    """Names of the methods that can protect the unit."""
    return [
      name
      for name, cls in registry.METHODS.items()
      if cls.protects_users or not self.users
    ]


def check_method_of_users(method: method_lib.Method) -> None:
  """Checks that a method can be fitted as a federated computation.

  Args:
    method: The method, with or without its defaults.

  Raises:
    errors.FieldError: If the method has no federated form, or takes a
      covariance matrix for each class.
  """
  if not method.protects_users:
    must = "be one that protects users in a federated fit"
    raise errors.FieldError("method", must, type(method).__name__)
  found = getattr(method, "covariance", "shared")
  if found != "shared":
    must = (
      "be 'shared' in a federated fit: a user would send one for each class"
    )
    raise errors.FieldError("covariance", must, repr(found))


def parse(text: str, kind: type) -> Any:
  """Converts a text to a value.

  Args:
    text: As the user typed it.
    kind: Type of the value, such as `int`.

  Returns:
    The value; or the text itself if it cannot be converted, for a later check
    to refuse.
  """
  try:
    return kind(text)
  except ValueError:
    return text


def describe_methods() -> str:
  """Lists the hyperparameters of every method, with defaults, for a help.

  Returns:
    A line per method, such as "sgd: steps=30, momentum=0.9, ...".
  """
  lines = []
  for name, cls in registry.METHODS.items():
    values = [f"{spec.name}={spec.default}" for spec in config.specs(cls)]
    lines.append(f"{name}: {', '.join(values)}")
  return ";\n".join(lines)
