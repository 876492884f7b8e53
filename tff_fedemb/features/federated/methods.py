"""Which fits there are as federated computations; known without TensorFlow."""

from tff_fedemb.features import feature_covariance
from tff_fedemb.features import least_squares
from tff_fedemb.features import method as method_lib
from tff_fedemb.features import sgd

METHODS = (
  sgd.Sgd,
  least_squares.LeastSquares,
  feature_covariance.FeatureCovariance,
)
# How the examples of one user count, see `federated_statistics.ClientConfig`.
EXAMPLE_WEIGHTINGS = ("mean", "sum")


def check_method(method: method_lib.Method) -> None:
  """Checks that a method can be fitted as a federated computation.

  Args:
    method: Any.

  Raises:
    ValueError: If it is none of `METHODS`, or draws batches of examples, or
      takes a covariance matrix for each class.
  """
  if not isinstance(method, METHODS):
    names = [supported.name for supported in METHODS]
    raise ValueError(
      "method must be one of"
      f" {names} in a federated fit, found {getattr(method, 'name', method)}."
    )
  if getattr(method, "covariance", "shared") != "shared":
    raise ValueError(
      "covariance must be 'shared' in a federated fit: a user would send a"
      f" matrix for each class, found {method.covariance!r}."
    )
  if getattr(method, "batch_size", None) is not None:
    raise ValueError(
      "batch_size must not be given in a federated fit, of which every user"
      f" takes part in every step, found {method.batch_size!r}."
    )


def check_weights(example_weighting: str, user_clip_norm: float) -> None:
  """Checks how much users may count for.

  Args:
    example_weighting: One of `EXAMPLE_WEIGHTINGS`.
    user_clip_norm: Bound of what a user sends, in examples of full norm.

  Raises:
    ValueError: If one is out of its range, or no mean is above the bound.
  """
  method_lib.check_choice(
    "example_weighting", example_weighting, EXAMPLE_WEIGHTINGS
  )
  method_lib.check_positive("user_clip_norm", user_clip_norm)
  if example_weighting == "mean" and user_clip_norm > 1:
    raise ValueError(
      "user_clip_norm must be at most 1 where example_weighting is mean, for"
      f" no mean is above it, found {user_clip_norm!r}."
    )
