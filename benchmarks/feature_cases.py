"""Fits on features that the benchmark measures, and the files they read.

A case is named METHOD_NxDxK, for n examples of d numbers in K classes. It is
fitted by a private method and by a bare loop: what somebody would write in
NumPy who needs this one classifier of these features, with no clipping, no
noise and no checks. Weights are `[K, d]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import dataclasses
import functools
import os
import re
import sys
import tempfile
from typing import Any

from etils import epy
import numpy as np

from benchmarks import results
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.features import feature_files
from tff_fedemb.features import registry

with epy.lazy_imports():
  from scipy import linalg
  from scipy import sparse

  from tff_fedemb.features import classifier

# Steps of the iterative methods.
STEPS = 30
METHODS: dict[str, dict[str, Any]] = {
  "least_squares": {"covariance": "shared"},
  "sgd": {"steps": STEPS},
  "feature_covariance": {"steps": STEPS},
}
_CASES_OF_ALL = (
  "sgd_50000x256x100",
  "feature_covariance_50000x256x100",
  "least_squares_250000x192x1000",
  "least_squares_250000x384x1000",
  "least_squares_250000x768x1000",
  "least_squares_125000x768x1000",
  "least_squares_500000x768x1000",
  "least_squares_1000000x768x1000",
)
# About half of the vectors are longer than a bound of one.
_MEAN_NORM, _SPREAD_NORM = 0.6, 0.8
EPSILON, DELTA = 1.0, 1e-7
_REGULARIZATION, _LEARNING_RATE, _MOMENTUM = 100.0, 4.0, 0.9
_CHUNK = 4096


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureBenchmarkConfig(results.BenchmarkConfig):
  """What the benchmark of fits is told.

  Attributes:
    cases: What to measure, METHOD_NxDxK, for N examples of D numbers in K
      classes; METHOD is least_squares, sgd or feature_covariance.
    data_dir: Directory for files of features, which are deleted [the system's
      for temporary files].
  """

  rounds: int = config_lib.field(3, minimum=1)
  warmup_rounds: int = config_lib.field(1, minimum=0)
  cases: tuple[str, ...] = config_lib.field(_CASES_OF_ALL)
  data_dir: str | None = None


@dataclasses.dataclass(frozen=True)
class Examples:
  """The size of a file: n examples of d numbers in K classes."""

  num_examples: int
  dim: int
  num_classes: int


def parse(name: str) -> tuple[str, Examples]:
  """Returns the method of a case, and what it is fitted on.

  Raises:
    errors.FieldError: If it is no name of a case.
  """
  number = r"([1-9]\d*)"
  found = re.fullmatch(
    rf"({'|'.join(METHODS)})_{number}x{number}x([2-9]|[1-9]\d+)", name
  )
  if found is None:
    raise errors.FieldError(
      "cases",
      "be METHOD_NxDxK (at least 1 example, 1 number, 2 classes) with METHOD"
      f" one of {', '.join(METHODS)}",
      repr(name),
    )
  return found[1], Examples(*map(int, found.groups()[1:]))


def write(path: str | os.PathLike[str], examples: Examples) -> None:
  """Writes an .npz that can be mapped into memory.

  Features are float32, a mean for each class and normal noise.
  """
  generator = np.random.default_rng(0)
  shape = (examples.num_examples, examples.dim)
  labels = generator.integers(examples.num_classes, size=shape[0])
  means = generator.standard_normal([examples.num_classes, shape[1]], "f4")
  features = generator.standard_normal(shape, "f4")
  scale = np.float32(1.0 / examples.dim**0.5)
  features *= _SPREAD_NORM * scale
  for start in range(0, shape[0], _CHUNK):
    rows = slice(start, start + _CHUNK)
    features[rows] += _MEAN_NORM * scale * means[labels[rows]]
  np.savez(path, label=labels, repr=features)
  # It is not to be written while something is measured.
  os.sync()


def check(config: FeatureBenchmarkConfig) -> None:
  """Checks the cases and the directory of their files.

  Raises:
    errors.FieldError: If there is no case, one is none, or no directory.
  """
  if not config.cases:
    raise errors.FieldError("cases", "name cases", "none")
  for name in config.cases:
    parse(name)
  if config.data_dir and not os.path.isdir(config.data_dir):
    raise errors.FieldError(
      "data_dir", "be an existing directory", config.data_dir
    )


def create_groups(
  config: FeatureBenchmarkConfig,
) -> Iterator[results.Group]:
  """Yields a group for each case, whose file exists until the next one."""
  worker = (sys.executable, "-m", "benchmarks.worker", "feature_cases")
  for name in dict.fromkeys(config.cases):
    examples = parse(name)[1]
    with tempfile.TemporaryDirectory(dir=config.data_dir or None) as directory:
      path = os.path.join(directory, "features.npz")
      yield results.Group(
        {
          (name, runtime): (*worker, name, runtime, path)
          for runtime in ("private", "bare")
        },
        prepare=functools.partial(write, path, examples),
        columns=dataclasses.asdict(examples),
        tells_anonymous_memory=True,
      )


def fit_least_squares(
  features: np.ndarray,
  labels: np.ndarray,
  *,
  num_classes: int,
  regularization: float,
) -> np.ndarray:
  """Returns (X'X + regularization I)^-1 applied to the classes' sums."""
  dim = features.shape[1]
  covariance = np.zeros([dim, dim])
  class_sums = np.zeros([num_classes, dim])
  for start in range(0, len(features), _CHUNK):
    # In a zip they are not aligned, and products of them take twice as long.
    chunk = np.array(features[start : start + _CHUNK])
    covariance += chunk.T @ chunk
    # A tenth of the time of `np.add.at` or of a product with a dense matrix.
    indicator = sparse.csr_matrix(
      (
        np.ones(len(chunk), chunk.dtype),
        (labels[start : start + _CHUNK], np.arange(len(chunk))),
      ),
      shape=(num_classes, len(chunk)),
    )
    class_sums += indicator @ chunk
  covariance[np.diag_indices(dim)] += regularization
  return linalg.solve(covariance, class_sums.T, assume_a="pos").T


def fit_gradients(
  features: np.ndarray,
  labels: np.ndarray,
  *,
  num_classes: int,
  steps: int,
  learning_rate: float,
  regularization: float | None = None,
) -> np.ndarray:
  """Returns weights of softmax regression after steps on all examples.

  With a regularization, gradients are preconditioned by
  (X'X + regularization I) / n.
  """
  features = np.array(features)
  num_examples, dim = features.shape
  factor = None
  if regularization is not None:
    covariance = (features.T @ features).astype(np.float64)
    covariance[np.diag_indices(dim)] += regularization
    factor = linalg.cho_factor(covariance / num_examples)
  weights = np.zeros([num_classes, dim])
  velocity = np.zeros_like(weights)
  for _ in range(steps):
    gradient = np.zeros_like(weights)
    for start in range(0, num_examples, _CHUNK):
      chunk = features[start : start + _CHUNK]
      residuals = chunk @ weights.T.astype(chunk.dtype)
      residuals -= residuals.max(axis=1, keepdims=True)
      np.exp(residuals, out=residuals)
      residuals /= residuals.sum(axis=1, keepdims=True)
      residuals[np.arange(len(chunk)), labels[start : start + _CHUNK]] -= 1
      gradient += residuals.T @ chunk
    gradient /= num_examples
    if factor is not None:
      gradient = linalg.cho_solve(factor, gradient.T).T
    velocity = _MOMENTUM * velocity + gradient
    weights = weights - learning_rate * velocity
  return weights


def fit(name: str, path: str, round_num: int) -> classifier.FeatureClassifier:
  """Fits a case to a file with privacy; the number is another each time."""
  data = feature_files.read_features(path)
  method, examples = parse(name)
  return classifier.FeatureClassifier(
    registry.METHODS.create(method, **METHODS[method]),
    num_classes=examples.num_classes,
    epsilon=EPSILON,
    # Each time another one: what is calibrated once is remembered.
    delta=DELTA / (1 + 0.01 * round_num),
    seed=round_num,
  ).fit(data.features, data.labels)


def fit_bare(name: str, path: str) -> np.ndarray:
  """Fits the same weights `[K, d]` without privacy, in a loop of NumPy's."""
  data = feature_files.read_features(path)
  method, examples = parse(name)
  steps = {"steps": STEPS, "learning_rate": _LEARNING_RATE}
  regularization = {"regularization": _REGULARIZATION}
  bare_fit: Callable[..., np.ndarray] = fit_gradients
  options = steps
  if method == "feature_covariance":
    options = steps | regularization
  if method == "least_squares":
    bare_fit, options = fit_least_squares, regularization
  return bare_fit(
    data.features, data.labels, num_classes=examples.num_classes, **options
  )


def create_round(name: str, runtime: str, path: str) -> Callable[[int], object]:
  """Returns what fits a case, 'private' or 'bare', with the round's number."""
  if runtime == "bare":
    return lambda round_num: fit_bare(name, path)
  return lambda round_num: fit(name, path, round_num)
