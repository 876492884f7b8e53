"""A fit in its own process: `feature_worker CASE RUNTIME PATH`.

`binaries.benchmark_features` starts it and measures.
"""

from collections.abc import Callable
import functools
import sys
from typing import Any

import numpy as np

from benchmarks import bare_features
from benchmarks import feature_cases
from benchmarks import rounds
from tff_fedemb.features import classifier
from tff_fedemb.features import feature_files
from tff_fedemb.features import registry

EPSILON, DELTA = 1.0, 1e-7
_REGULARIZATION, _LEARNING_RATE = 100.0, 4.0


def fit(name: str, path: str, round_num: int) -> classifier.FeatureClassifier:
  """Fits a case to a file with privacy; the number is another each time."""
  data = feature_files.read_features(path)
  method, examples = feature_cases.parse(name)
  return classifier.FeatureClassifier(
    registry.create_method(method, **feature_cases.METHODS[method]),
    num_classes=examples.num_classes,
    epsilon=EPSILON,
    # Each time another one: what is calibrated once is remembered.
    delta=DELTA / (1 + 0.01 * round_num),
    seed=round_num,
  ).fit(data.features, data.labels)


def fit_bare(name: str, path: str) -> np.ndarray:
  """Fits the same weights `[K, d]` without privacy, in a loop of NumPy's."""
  data = feature_files.read_features(path)
  method, examples = feature_cases.parse(name)
  options: dict[str, Any] = {"num_classes": examples.num_classes}
  if method != "sgd":
    options["regularization"] = _REGULARIZATION
  bare_fit: Callable[..., np.ndarray] = bare_features.fit_least_squares
  if method != "least_squares":
    bare_fit = bare_features.fit_gradients
    options |= {"steps": feature_cases.STEPS, "learning_rate": _LEARNING_RATE}
  return bare_fit(data.features, data.labels, **options)


def main(name: str, runtime: str, path: str) -> None:
  """Fits on request until its input ends."""
  if runtime == "bare":
    rounds.answer(lambda: lambda _: fit_bare(name, path))
  else:
    rounds.answer(lambda: functools.partial(fit, name, path))


if __name__ == "__main__":
  main(*sys.argv[1:])
