"""A fit in its own process: `feature_worker CASE RUNTIME PATH`.

`binaries.benchmark_features` starts it and measures.
"""

from collections.abc import Callable
import functools
import sys

import numpy as np

from benchmarks import bare_features
from benchmarks import feature_cases
from benchmarks import rounds
from tff_fedemb.features import classifier
from tff_fedemb.features import feature_files

EPSILON, DELTA = 1.0, 1e-7
_REGULARIZATION, _LEARNING_RATE = 100.0, 4.0


def fit(
  case: feature_cases.Case, path: str, round_num: int
) -> classifier.FeatureClassifier:
  """Fits with differential privacy.

  Args:
    case: The method.
    path: File of what it is fitted on.
    round_num: Another one each time.
  """
  data = feature_files.read_features(path)
  return classifier.FeatureClassifier(
    case.create_method(),
    num_classes=case.examples.num_classes,
    epsilon=EPSILON,
    # Each time another one: what is calibrated once is remembered.
    delta=DELTA / (1 + 0.01 * round_num),
    seed=round_num,
  ).fit(data.features, data.labels)


def fit_bare(case: feature_cases.Case, path: str) -> np.ndarray:
  """Fits the same weights `[K, d]` without privacy, in a loop of NumPy's.

  Args:
    case: The method.
    path: File of what it is fitted on.
  """
  data = feature_files.read_features(path)
  bare_fit: Callable[..., np.ndarray] = functools.partial(
    bare_features.fit_gradients,
    steps=feature_cases.STEPS,
    learning_rate=_LEARNING_RATE,
  )
  if case.method_name == "least_squares":
    bare_fit = bare_features.fit_least_squares
  if case.method_name != "sgd":
    bare_fit = functools.partial(bare_fit, regularization=_REGULARIZATION)
  return bare_fit(
    data.features, data.labels, num_classes=case.examples.num_classes
  )


def main(name: str, runtime: str, path: str) -> None:
  """Fits on request until its input ends."""
  case = feature_cases.parse(name)
  with rounds.answering() as run:
    if runtime == "bare":
      run(lambda _: fit_bare(case, path))
    else:
      run(lambda round_num: fit(case, path, round_num))


if __name__ == "__main__":
  main(*sys.argv[1:])
