"""The registry of methods, by the names that flags and reports use."""

from tff_fedemb import registry
from tff_fedemb.features import feature_covariance
from tff_fedemb.features import least_squares
from tff_fedemb.features import method
from tff_fedemb.features import newton
from tff_fedemb.features import sgd

# To add a method, write one file and add one line here.
METHODS: registry.Registry[method.Method] = registry.Registry(
  method.Method,
  {
    "sgd": sgd.Sgd,
    "least_squares": least_squares.LeastSquares,
    "newton": newton.Newton,
    "feature_covariance": feature_covariance.FeatureCovariance,
  },
  kind="method",
)
