"""How to fit a private classifier on features, as it was typed."""

from collections.abc import Sequence
import dataclasses
from typing import Any

from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb import registry as registry_lib
from tff_fedemb import runtime as runtime_lib
from tff_fedemb.features import budget as budget_lib
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import feature_covariance
from tff_fedemb.features import least_squares
from tff_fedemb.features import method as method_lib
from tff_fedemb.features import registry
from tff_fedemb.features import sgd

# Those that can protect users.
METHODS_OF_USERS: tuple[type[method_lib.Method], ...] = (
  sgd.Sgd,
  least_squares.LeastSquares,
  feature_covariance.FeatureCovariance,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Protection(config.Config):
  """What is protected, and how."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExampleSettings(Protection):
  """How examples are protected.

  Attributes:
    seed: Seed of the noise, for experiments that are to be repeated: who knows
      it can take the noise away, and no epsilon is claimed [secret].
  """

  seed: int | None = config.field(None, minimum=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class UserSettings(Protection):
  """How much users count for, and what runs the rounds.

  Attributes:
    user_clip_norm: Bound of what a user sends in a round, in contributions of
      one example of full norm.
    runtime: What runs the rounds.
  """

  user_clip_norm: float = config.field(1.0, above=0)
  runtime: str = config.field("in_process", choices=runtime_lib.RUNTIMES)


UNITS: registry_lib.Registry[Protection] = registry_lib.Registry(
  Protection, {"example": ExampleSettings, "user": UserSettings}, kind="unit"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CommonConfig(config.Config):
  """What a fit and a sweep of fits are both asked for.

  Attributes:
    delta: Delta of the guarantee, below one over the number of training
      examples, or of users with unit user (not needed without noise).
    num_classes: Classes [1 + the largest label of both files, assumed to be
      public].
    clip_norm: Bound of the L2 norm of a feature vector; longer ones are scaled
      down to it.
    output_json: File for the result, in a directory that exists.
    overwrite: Whether to replace files that exist.
    protection: What is protected, where user stands for all examples of a user
      (by a federated fit on training features with users, whose noise has no
      seed).
  """

  delta: float | None = config.field(None, above=0, below=1)
  num_classes: int | None = config.field(None, minimum=2)
  clip_norm: float = config.field(1.0, **examples_lib.BOUND_RANGE)
  output_json: str
  overwrite: bool = False
  protection: Protection = config.part(
    ExampleSettings(), registry=UNITS, flag="unit"
  )

  @property
  def users(self) -> UserSettings | None:
    """How users are protected; `None` where examples are."""
    found = self.protection
    return found if isinstance(found, UserSettings) else None

  @property
  def seed(self) -> int | None:
    """Seed of the noise; fits that protect users have none."""
    return getattr(self.protection, "seed", None)

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
      field: Where the items were typed.
      items: Its hyperparameters, as in `parse_pairs`.
      epsilons: Targets; infinity for no noise.

    Raises:
      errors.FieldError: If a hyperparameter is unknown, a value out of its
        range, a target none, or the method not for users.
    """
    specs = {spec.name: spec for spec in config.specs(registry.METHODS[name])}
    values = {}
    for key, text in parse_pairs(field, items).items():
      if key not in specs:
        raise errors.FieldError(
          field, f"name hyperparameters of {name}, {', '.join(specs)}", key
        )
      values[key] = _parse_value(specs[key], text)
    method = registry.METHODS.create(name, **values)
    for epsilon in epsilons:
      budget_lib.check_target(epsilon, self.delta)
    if self.users:
      check_method_of_users(method)
    return method


def check_method_of_users(method: method_lib.Method) -> None:
  """Checks that a method can be fitted as a federated computation.

  Raises:
    errors.FieldError: If it is none of `METHODS_OF_USERS`, or takes a
      covariance matrix for each class.
  """
  if not isinstance(method, METHODS_OF_USERS):
    names = ", ".join(map(registry.METHODS.name_of, METHODS_OF_USERS))
    raise errors.FieldError(
      "method", f"be one of {names} in a federated fit", type(method).__name__
    )
  found = getattr(method, "covariance", "shared")
  if found != "shared":
    raise errors.FieldError(
      "covariance",
      "be 'shared': a user would send one a class, in a federated fit",
      repr(found),
    )


def _parse_value(spec: config.FieldSpec, text: str) -> Any:
  """The value that a text stands for; the text itself if it stands for none."""
  if spec.optional and text.lower() == "none":
    return None
  try:
    return spec.type(text)
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
      raise errors.FieldError(
        name, "have items NAME=VALUE, no name twice", repr(text)
      )
    pairs[key] = value
  return pairs


def parse_numbers(
  name: str, texts: Sequence[str], kind: type[int] | type[float]
) -> tuple[Any, ...]:
  """Returns the numbers of a field.

  Args:
    name: Name of the field.
    texts: The numbers.
    kind: What they are.

  Raises:
    errors.FieldError: If a text is no such number.
  """
  try:
    return tuple(map(kind, texts))
  except ValueError as error:
    words = "integers" if kind is int else "numbers, inf for no noise,"
    raise errors.FieldError(
      name, f"be {words} with commas between", repr(",".join(texts))
    ) from error


def parse_split(texts: Sequence[str]) -> dict[str, float]:
  """Returns shares by name of release, from items such as 'covariance=0.3'."""
  pairs = parse_pairs("split", texts)
  shares = parse_numbers("split", tuple(pairs.values()), float)
  return dict(zip(pairs, shares, strict=True))


def method_names(*, of_users: bool) -> list[str]:
  """Returns the methods that there are, or those that can protect users."""
  return [
    name
    for name, cls in registry.METHODS.items()
    if not of_users or issubclass(cls, METHODS_OF_USERS)
  ]


def describe_methods() -> str:
  """Returns the hyperparameters of every method and their defaults."""
  return ";\n".join(
    f"{name}: "
    + ", ".join(f"{spec.name}={spec.default}" for spec in config.specs(cls))
    for name, cls in registry.METHODS.items()
  )
