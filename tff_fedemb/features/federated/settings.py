"""What is fitted for users, and how they count; known without TensorFlow."""

import dataclasses

from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb import runtime as runtime_lib
from tff_fedemb.features import feature_covariance
from tff_fedemb.features import least_squares
from tff_fedemb.features import method as method_lib
from tff_fedemb.features import registry
from tff_fedemb.features import sgd

METHODS: tuple[type[method_lib.Method], ...] = (
  sgd.Sgd,
  least_squares.LeastSquares,
  feature_covariance.FeatureCovariance,
)
# How the examples of one user count, see `statistics.ClientConfig`.
EXAMPLE_WEIGHTINGS = ("mean", "sum")


@dataclasses.dataclass(frozen=True, kw_only=True)
class UserSettings(config.Config):
  """How much users count for, and what runs the rounds.

  Attributes:
    example_weighting: 'sum' counts as many examples as a user has, up to
      user_clip_norm; 'mean' counts their mean as one example, which is a short
      vector where they differ, and wants a small user_clip_norm.
    user_clip_norm: Bound of what a user sends in a round, in contributions of
      one example of full norm; at most 1 for means.
    runtime: What runs the rounds.
  """

  example_weighting: str = config.field("sum", choices=EXAMPLE_WEIGHTINGS)
  user_clip_norm: float = config.field(1.0, above=0)
  runtime: str = config.field("in_process", choices=runtime_lib.RUNTIMES)

  def __post_init__(self):
    super().__post_init__()
    if self.example_weighting == "mean" and self.user_clip_norm > 1:
      raise errors.FieldError(
        "user_clip_norm",
        "be at most 1 where example_weighting is mean, for no mean is above it",
        self.user_clip_norm,
      )


def check_method(method: method_lib.Method) -> None:
  """Checks that a method can be fitted as a federated computation.

  Args:
    method: Any.

  Raises:
    errors.FieldError: If it is none of `METHODS`, or takes a covariance matrix
      for each class.
  """
  if not isinstance(method, METHODS):
    names = ", ".join(map(registry.METHODS.name_of, METHODS))
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
