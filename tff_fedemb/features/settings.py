"""Settings of private fits on features, as a user types them."""

from collections.abc import Sequence
import dataclasses
from typing import Any

from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb import registry as registry_lib
from tff_fedemb import runtime as runtime_lib
from tff_fedemb.features import budget as budget_lib
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
    seed: Seed of the noise, for experiments that are to be repeated: who knows
      it can take the noise away, and no epsilon is claimed [secret].
  """

  seed: int | None = config.field(None, minimum=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class UserSettings(Protection):
  """Protection of users.

  Attributes:
    user_clip_norm: Largest norm of the statistics that a user sends in a round,
      in units of those of one example of full norm.
    runtime: Runtime of the rounds.
  """

  user_clip_norm: float = config.field(1.0, above=0)
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
    overwrite: Whether to replace files that exist.
    protection: Protected unit, where user stands for all examples of a user
      (by a federated fit on training features with users, whose noise has no
      seed).
  """

  delta: float | None = config.field(None, above=0, below=1)
  num_classes: int | None = config.field(None, minimum=2)
  clip_norm: float = config.field(1.0, **examples_lib.BOUND_RANGE)
  output_json: str
  train: str
  overwrite: bool = False
  protection: Protection = config.part(
    ExampleSettings(), registry=UNITS, flag="unit"
  )

  @property
  def users(self) -> UserSettings | None:
    """Protection of users; `None` where examples are protected."""
    found = self.protection
    return found if isinstance(found, UserSettings) else None

  def create_method(
    self,
    name: str,
    field: str,
    items: Sequence[str],
    *,
    epsilons: Sequence[float],
  ) -> method_lib.Method:
    """Creates a method, checking before any data are read that it can be fit.

    Args:
      name: A key of `registry.METHODS`.
      field: Field that the items are from.
      items: Its hyperparameters, as in `parse_pairs`.
      epsilons: Targets; infinity for no noise.

    Raises:
      errors.FieldError: If a hyperparameter is unknown, a value out of its
        range, a target none, or the method not for users.
    """
    types = {x.name: x.type for x in config.specs(registry.METHODS[name])}
    values = {
      key: None if text.lower() == "none" else parse(text, types.get(key, str))
      for key, text in parse_pairs(field, items).items()
    }
    method = registry.METHODS.create(name, **values)
    for epsilon in epsilons:
      budget_lib.check_target(epsilon, self.delta)
    if self.users:
      check_method_of_users(method)
    return method


def check_method_of_users(method: method_lib.Method) -> None:
  """Checks that a method can be fitted as a federated computation.

  Raises:
    errors.FieldError: If the method has no federated form, or takes a
      covariance matrix for each class.
  """
  if not method.protects_users:
    names = ", ".join(method_names(of_users=True))
    must = f"be one of {names} in a federated fit"
    raise errors.FieldError("method", must, type(method).__name__)
  found = getattr(method, "covariance", "shared")
  if found != "shared":
    must = "be 'shared' in a federated fit: a user would send one a class"
    raise errors.FieldError("covariance", must, repr(found))


def parse(text: str, kind: type) -> Any:
  """Returns what a text stands for; itself, to be refused, if for nothing."""
  try:
    return kind(text)
  except ValueError:
    return text


def parse_pairs(name: str, texts: Sequence[str]) -> dict[str, str]:
  """Splits `key=value` items of a field.

  Args:
    name: Name of the field.
    texts: The items.

  Raises:
    errors.FieldError: If an item has another form, or a key comes twice.
  """
  pairs = {}
  for text in texts:
    key, _, value = (part.strip() for part in text.partition("="))
    if not (key and value) or key in pairs:
      must = "have items NAME=VALUE, no name twice"
      raise errors.FieldError(name, must, repr(text))
    pairs[key] = value
  return pairs


def method_names(*, of_users: bool) -> list[str]:
  """Returns the methods that there are, or those that can protect users."""
  return [
    name
    for name, cls in registry.METHODS.items()
    if cls.protects_users or not of_users
  ]


def describe_methods() -> str:
  """Returns the hyperparameters of every method and their defaults."""
  return ";\n".join(
    f"{name}: "
    + ", ".join(f"{spec.name}={spec.default}" for spec in config.specs(cls))
    for name, cls in registry.METHODS.items()
  )
