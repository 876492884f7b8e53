"""One private fit on files of features, from the files to the report.

What `classify_features` does once its flags are read, and what
`sweep_features` does many times.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import functools
import importlib.metadata
import json
import math
import pathlib
from typing import Any

import numpy as np

from experiments import feature_problems
from experiments import feature_settings
from experiments import output_files
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.features import classifier as classifier_lib
from tff_fedemb.features import method as method_lib
from tff_fedemb.features import registry
from tff_fedemb.privacy import report as report_lib

CLASSES_FROM_LABELS = (
  "the number of classes was taken from the labels of the files and is"
  " assumed to be public"
)
_TEST_NOT_COVERED = (
  "the test examples: the accuracy and the predictions on them are published"
  " as they are"
)
_TEST_OF_USERS_NOT_COVERED = (
  "the test examples, also those of users whose other examples were fitted"
  " to: the accuracy and the predictions on them are published as they are"
)
_LIBRARIES = ("dp-accounting", "numpy", "scipy", "scikit-learn")
_LIBRARIES_OF_USERS = (
  "tensorflow",
  "tensorflow-federated",
  "tensorflow-privacy",
)


@dataclasses.dataclass(frozen=True)
class Fit:
  """What came out of a fit.

  Attributes:
    weights: `[num_classes, dim]`.
    logits: Of the test examples, `[n, num_classes]`.
    test_accuracy: In [0, 1].
    report: What it cost.
  """

  weights: np.ndarray
  logits: np.ndarray
  test_accuracy: float
  report: classifier_lib.FitReport


def fit(
  config: feature_settings.CommonConfig,
  problem: feature_problems.Problem,
  method: method_lib.Method,
  *,
  epsilon: float,
  split: Mapping[str, float] | None = None,
  seed: int | None = None,
) -> Fit:
  """Fits and tests a classifier.

  Privacy:
    As the report says; the accuracy and the logits, which are of the test
    examples, cost these their privacy, and the training examples nothing
    more.

  Args:
    config: What is common to all fits.
    problem: On what; it has users if they are protected.
    method: How to fit.
    epsilon: Target, positive; infinity for no noise.
    split: Shares of the budget by name of release, instead of the method's.
    seed: Of noise and sampling; `None` for the operating system's entropy.

  Raises:
    errors.FieldError: If a value is out of its range, or does not fit the
      examples.
    errors.DataError: If features are not finite, or a user has no name.
  """
  data = [problem.train.features, problem.train.labels]
  create: Callable[..., Any] = classifier_lib.FeatureClassifier
  options: dict[str, Any] = {"seed": seed}
  if config.users:
    # TensorFlow takes seconds to import, and examples do without it.
    from tff_fedemb.features.federated import classifier as of_users

    data.append(problem.train.users)
    create = of_users.FederatedFeatureClassifier
    options = dataclasses.asdict(config.users)
  try:
    classifier = create(
      method,
      num_classes=problem.num_classes,
      epsilon=epsilon,
      delta=config.delta,
      clip_norm=config.clip_norm,
      scaling=config.scaling,
      split=split,
      **options,
    ).fit(*data)
  except errors.FieldError as error:
    if error.name in ("features", "users"):
      raise feature_problems.bad_file("train", error) from error
    raise
  try:
    logits = classifier.decision_function(problem.test.features)
  except errors.FieldError as error:
    raise feature_problems.bad_file("test", error) from error
  accuracy = np.mean(logits.argmax(axis=1) == problem.test.labels)
  report = classifier.report_
  assumptions = list(report.assumptions)
  if problem.is_from_labels:
    assumptions.remove(classifier_lib.CLASSES_ARE_PUBLIC)
    assumptions.append(CLASSES_FROM_LABELS)
  of_test = _TEST_OF_USERS_NOT_COVERED if config.users else _TEST_NOT_COVERED
  report = dataclasses.replace(
    report,
    assumptions=tuple(assumptions),
    not_covered=(*report.not_covered, of_test),
  )
  return Fit(classifier.coef_, logits, float(accuracy), report)


def versions(*, has_users: bool) -> dict[str, str]:
  """Returns the versions of the libraries that compute.

  Args:
    has_users: If users are protected, other libraries compute as well.
  """
  names = (*_LIBRARIES, *(_LIBRARIES_OF_USERS if has_users else ()))
  return {name: importlib.metadata.version(name) for name in names}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationConfig(feature_settings.CommonConfig):
  """What to fit, on what, and where to write.

  Attributes:
    train: Features to fit on.
    test: Features to test on.
    method: How to fit.
    hyperparameters: Of the method, NAME=VALUE with commas between. With their
      defaults, where None depends on size and noise.
    epsilon: Epsilon to stay within; inf: no noise.
    split: Shares of the budget, such as covariance=0.3,gradient=0.7 [the
      method's].
    predictions: File (.npz) for predictions [n] and logits [n, num_classes] of
      the test examples [none].
    output_weights: File (.npz) for the weights, coef [num_classes, dim] [none].
  """

  train: str
  test: str
  method: str = config_lib.field("feature_covariance", choices=registry.METHODS)
  hyperparameters: tuple[str, ...] = ()
  epsilon: float = config_lib.field(above=0, maximum=math.inf)
  split: tuple[str, ...] = ()
  predictions: str | None = None
  output_weights: str | None = None


def execute(config: ClassificationConfig) -> None:
  """Fits a classifier, tests it, and writes and prints the result.

  Args:
    config: What to do.

  Raises:
    errors.FieldError: If it cannot be done; nothing is written then.
    errors.DataError: If a file cannot be used; neither then.
  """
  has_users = config.users is not None
  split = feature_settings.parse_split(config.split)
  say_mistakes = functools.partial(
    feature_settings.hyperparameters_in,
    "hyperparameters",
    f"fit method {config.method}",
    config.method,
  )
  with say_mistakes():
    method = feature_settings.create_method(
      config.method,
      feature_settings.parse_pairs("hyperparameters", config.hyperparameters),
    )
    config.check_fit(method, config.epsilon)
  output_files.check(
    {
      name: getattr(config, name)
      for name in ("output_json", "predictions", "output_weights")
    },
    inputs={"train": [config.train], "test": [config.test]},
    overwrite=config.overwrite,
  )
  problem = feature_problems.read_problem(
    config.train,
    config.test,
    num_classes=config.num_classes,
    has_users=has_users,
  )
  with say_mistakes():
    result = fit(
      config,
      problem,
      method,
      epsilon=config.epsilon,
      split=split,
      seed=config.seed,
    )
  report = report_lib.json_safe(
    {
      "test_accuracy": result.test_accuracy,
      **problem.size,
      "method": config.method,
      "target_epsilon": config.epsilon,
      **result.report.to_json(),
      "clip_norm": config.clip_norm,
      "scaling": config.scaling,
      "split": split,
      "seed": config.seed,
      "rounds": sum(r["count"] for r in result.report.releases)
      if has_users
      else None,
      "runtime": config.users.runtime if config.users else None,
      "train": config.train,
      "test": config.test,
      "versions": versions(has_users=has_users),
    }
  )
  predictions = result.logits.argmax(axis=1)
  arrays = {
    "predictions": {"predictions": predictions, "logits": result.logits},
    "output_weights": {"coef": result.weights},
  }
  writers = {
    "output_json": (
      config.output_json,
      functools.partial(write_json, values=report),
    )
  } | {
    name: (path, functools.partial(_write_arrays, **arrays[name]))
    for name in arrays
    if (path := getattr(config, name))
  }
  output_files.write(writers)
  _tell(result, report, [path for path, _ in writers.values()])


def write_json(path: pathlib.Path, *, values: Mapping[str, Any]) -> None:
  """Writes JSON values, none of them infinite."""
  path.write_text(
    json.dumps(values, indent=2, allow_nan=False) + "\n", encoding="utf-8"
  )


def _write_arrays(path: pathlib.Path, **arrays: np.ndarray) -> None:
  """Writes arrays by name as .npz, whatever the path's suffix is."""
  with path.open("wb") as file:
    np.savez(file, **arrays)


def _tell(result: Fit, report: Mapping[str, Any], paths: list[str]) -> None:
  """Prints the outcome."""
  if "num_users" in report:
    fitted = f"{report['num_users']:,} users"
  else:
    fitted = f"{report['train_size']:,} examples"
  print(
    f"test accuracy {result.test_accuracy:.4f} ({report['test_size']:,}"
    f" examples, {report['num_classes']:,} classes), {report['method']}"
    f" fitted to {fitted}"
  )
  if result.report.epsilon == math.inf:
    print("epsilon = inf: no noise, no privacy")
  else:
    print(
      f"epsilon = {result.report.epsilon:.4f} at delta ="
      f" {result.report.delta:g} ({result.report.accountant}),"
      f" {result.report.neighboring_relation}"
    )
  print(f"releases: {'; '.join(map(_in_words, result.report.releases))}")
  for warning in report["warnings"]:
    print(f"warning: {warning}")
  print(f"Written to {' and '.join(paths)}.")


def _in_words(release: Mapping[str, Any]) -> str:
  count = release["count"]
  words = [
    f"{release['name']} {'once' if count == 1 else f'{count:,} times'}",
    f"noise multiplier {release['noise_multiplier']:.4g}",
  ]
  if release["sampling_probability"] < 1:
    words.append(f"sampling probability {release['sampling_probability']:.4g}")
  return ", ".join(words)
