"""The registry of methods."""

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.features import feature_covariance
from tff_fedemb.features import least_squares
from tff_fedemb.features import method as method_lib
from tff_fedemb.features import newton
from tff_fedemb.features import sgd

# A new method is one file and one line here.
METHODS: dict[str, type[method_lib.Method]] = {
  "sgd": sgd.Sgd,
  "least_squares": least_squares.LeastSquares,
  "newton": newton.Newton,
  "feature_covariance": feature_covariance.FeatureCovariance,
}


def create_method(name: str, /, **hyperparameters) -> method_lib.Method:
  """Creates a method.

  Args:
    name: A key of `METHODS`.
    **hyperparameters: Attributes of its class.

  Raises:
    errors.FieldError: If the name or a hyperparameter is unknown, or a value
      out of its range.
  """
  checks.check_choice("method", name, METHODS)
  known = METHODS[name].hyperparameter_names()
  for hyperparameter in hyperparameters:
    if hyperparameter not in known:
      raise errors.FieldError(
        "hyperparameters",
        f"be among those of {name}, {', '.join(known)}",
        repr(hyperparameter),
      )
  return METHODS[name](**hyperparameters)
