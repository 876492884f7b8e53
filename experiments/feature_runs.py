"""One private fit on files of features, from the files to the report.

What `classify_features` does once its flags are read, and what
`sweep_features` does many times.
"""

from collections.abc import Mapping
import dataclasses
import functools
import importlib.metadata
import math
from typing import Any

import numpy as np

from experiments import command_line
from experiments import feature_output
from experiments import feature_problems
from experiments import feature_settings
from experiments import output_files
from tff_fedemb.features import classifier as classifier_lib
from tff_fedemb.privacy import report as report_lib

CLASSES_FROM_LABELS = (
  "the number of classes was taken from the labels of the files and is"
  " assumed to be public"
)
# What the classifier assumes where it was told the number.
_CLASSES_ARE_PUBLIC = "the number of classes is public"
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


def _fit_classifier(
  settings: feature_settings.FitSettings, problem: feature_problems.Problem
) -> classifier_lib.LinearClassifier:
  """Fits what protects the unit of privacy."""
  options = {
    "num_classes": problem.num_classes,
    "epsilon": settings.epsilon,
    "delta": settings.delta,
    "clip_norm": settings.clip_norm,
    "scaling": settings.scaling,
    "split": settings.split,
  }
  train = problem.train
  if settings.users is None:
    return classifier_lib.FeatureClassifier(
      settings.method, **options, seed=settings.seed
    ).fit(train.features, train.labels)
  # TensorFlow takes seconds to import, and examples do without it.
  from tff_fedemb.features.federated import classifier as federated_classifier

  return federated_classifier.FederatedFeatureClassifier(
    settings.method, **options, **dataclasses.asdict(settings.users)
  ).fit(train.features, train.labels, train.users)


def fit(
  settings: feature_settings.FitSettings, problem: feature_problems.Problem
) -> Fit:
  """Fits and tests a classifier.

  Privacy:
    As the report says; the accuracy and the logits, which are of the test
    examples, cost these their privacy, and the training examples nothing
    more.

  Args:
    settings: How to fit.
    problem: On what; it has users if the settings have.

  Raises:
    HyperparameterError: If a hyperparameter does not fit the examples.
    ValueError: If another value is out of its range.
    UsageError: If features are not finite, or a user has no name.
  """
  try:
    with feature_settings.hyperparameter_errors(settings.method):
      classifier = _fit_classifier(settings, problem)
  except ValueError as error:
    if str(error).startswith(("features", "users")):
      raise feature_problems.bad_file("train", error) from error
    raise
  try:
    logits = classifier.decision_function(problem.test.features)
  except ValueError as error:
    raise feature_problems.bad_file("test", error) from error
  accuracy = np.mean(logits.argmax(axis=1) == problem.test.labels)
  report = classifier.report_
  assumptions = report.assumptions
  if problem.is_from_labels:
    assumptions = (
      *(
        text for text in assumptions if not text.startswith(_CLASSES_ARE_PUBLIC)
      ),
      CLASSES_FROM_LABELS,
    )
  report = dataclasses.replace(
    report,
    assumptions=assumptions,
    not_covered=(
      *report.not_covered,
      _TEST_OF_USERS_NOT_COVERED if problem.has_users else _TEST_NOT_COVERED,
    ),
  )
  return Fit(classifier.coef_, logits, float(accuracy), report)


def versions(
  users: feature_settings.UserSettings | None = None,
) -> dict[str, str]:
  """Returns the versions of the libraries that compute.

  Args:
    users: If users are protected, other libraries compute as well.
  """
  names = (*_LIBRARIES, *(_LIBRARIES_OF_USERS if users else ()))
  return {name: importlib.metadata.version(name) for name in names}


@dataclasses.dataclass(frozen=True)
class ClassificationConfig:
  """What to fit, on what, and where to write.

  Attributes:
    train: File to fit on.
    test: File to test on.
    output_json: File for the report.
    settings: How to fit.
    num_classes: `None` to take it from the labels.
    predictions: File for predicted labels and logits, or `None`.
    output_weights: File for the weights, or `None`.
    overwrite: Whether files may be replaced.

  Raises:
    ValueError: If a file is not given.
  """

  train: str
  test: str
  output_json: str
  settings: feature_settings.FitSettings
  num_classes: int | None = None
  predictions: str | None = None
  output_weights: str | None = None
  overwrite: bool = False

  def __post_init__(self):
    for name in ("train", "test", "output_json"):
      if not getattr(self, name):
        raise ValueError(f"{name} must be given, found nothing.")


def execute(config: ClassificationConfig) -> None:
  """Fits a classifier, tests it, and writes and prints the result.

  Args:
    config: What to do.

  Raises:
    UsageError: If it cannot be done; nothing is written then.
  """
  output_files.check(
    {
      name: getattr(config, name)
      for name in ("output_json", "predictions", "output_weights")
    },
    inputs={"train": [config.train], "test": [config.test]},
    overwrite=config.overwrite,
  )
  settings = config.settings
  problem = feature_problems.read_problem(
    config.train,
    config.test,
    num_classes=config.num_classes,
    has_users=settings.users is not None,
  )
  with feature_settings.hyperparameters_from(
    f"--hyperparameters must fit method {settings.method.name}"
  ):
    result = command_line.call_with_flags(fit, settings, problem)
  report = report_lib.json_safe(
    {
      "test_accuracy": result.test_accuracy,
      **problem.size,
      "method": settings.method.name,
      "target_epsilon": settings.epsilon,
      **result.report.to_json(),
      "clip_norm": settings.clip_norm,
      "scaling": settings.scaling,
      "split": settings.split,
      "seed": settings.seed,
      "rounds": sum(r["count"] for r in result.report.releases)
      if settings.users
      else None,
      "runtime": settings.users.runtime if settings.users else None,
      "train": config.train,
      "test": config.test,
      "versions": versions(settings.users),
    }
  )
  writers = {
    "output_json": functools.partial(feature_output.write_json, values=report),
    "predictions": functools.partial(
      feature_output.write_arrays,
      predictions=result.logits.argmax(axis=1),
      logits=result.logits,
    ),
    "output_weights": functools.partial(
      feature_output.write_arrays, coef=result.weights
    ),
  }
  paths = {name: getattr(config, name) for name in writers}
  paths = {name: path for name, path in paths.items() if path}
  output_files.write(
    {name: (path, writers[name]) for name, path in paths.items()}
  )
  _tell(result, report, list(paths.values()))


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
