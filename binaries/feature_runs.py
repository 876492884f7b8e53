"""One private fit on files of features, from the files to the report.

What `classify_features` does once its flags are read, and what
`sweep_features` does many times.
"""

from collections.abc import Mapping
import dataclasses
import functools
import importlib.metadata
import math
import re
from typing import Any

import numpy as np

from binaries import command_line
from binaries import feature_output
from binaries import feature_settings
from tff_fedemb.features import classifier as classifier_lib
from tff_fedemb.features import feature_files
from tff_fedemb.privacy import checks
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
_LIBRARIES = ("dp-accounting", "numpy", "scipy", "scikit-learn")


@dataclasses.dataclass(frozen=True)
class Problem:
  """What to fit on, and what to test on.

  Attributes:
    train: Examples to fit on, of which nothing but a fit may be published.
    test: Examples whose accuracy is published.
    num_classes: K.
    is_from_labels: Whether K was taken from the labels.
  """

  train: feature_files.FeatureSet
  test: feature_files.FeatureSet
  num_classes: int
  is_from_labels: bool

  @property
  def size(self) -> dict[str, int]:
    """JSON values by name."""
    return {
        "train_size": len(self.train.labels),
        "test_size": len(self.test.labels),
        "dim": self.train.features.shape[1],
        "num_classes": self.num_classes,
    }


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


def read_problem(
    train: str, test: str, *, num_classes: int | None = None
) -> Problem:
  """Reads the features of a fit.

  Args:
    train: File to fit on.
    test: File to test on.
    num_classes: Above all labels; `None` to take it from the labels.

  Raises:
    UsageError: If a file or the number is not as it has to be.
  """
  if num_classes is not None:
    command_line.call_with_flags(
        checks.check_integer, "num_classes", num_classes, minimum=2
    )
  paths = {"train": train, "test": test}
  sets = {name: _read(name, path) for name, path in paths.items()}
  dim = sets["train"].features.shape[1]
  if sets["test"].features.shape[1] != dim:
    raise command_line.UsageError(
        f"--test must have {dim} features an example, as --train={train} has,"
        f" found {sets['test'].features.shape[1]} in {test}."
    )
  largest = {name: int(found.labels.max()) for name, found in sets.items()}
  if num_classes is None:
    return Problem(
        **sets, num_classes=_count_classes(sets, largest), is_from_labels=True
    )
  for name, path in paths.items():
    if largest[name] >= num_classes:
      raise command_line.UsageError(
          f"--num_classes must be above all labels, found {num_classes} and"
          f" label {largest[name]} in --{name}={path}."
      )
  return Problem(**sets, num_classes=num_classes, is_from_labels=False)


def _count_classes(
    sets: Mapping[str, feature_files.FeatureSet], largest: Mapping[str, int]
) -> int:
  num_classes = 1 + max(largest.values())
  num_examples = sum(len(found.labels) for found in sets.values())
  # Identifiers in place of labels would take memory for each number between.
  if not 2 <= num_classes <= max(num_examples, 2):
    raise command_line.UsageError(
        "--num_classes must be given unless labels are 0, 1, ... of two or more"
        f" classes, found labels up to {num_classes - 1:,} of"
        f" {num_examples:,} examples."
    )
  return num_classes


def _read(name: str, path: str) -> feature_files.FeatureSet:
  try:
    return feature_files.read_features(path)
  except feature_files.FeatureFileError as error:
    raise _bad_file(name, error) from error


def _bad_file(name: str, error: ValueError) -> command_line.UsageError:
  return command_line.UsageError(
      f"--{name} must be a file of features: {error}"
  )


def create_classifier(
    settings: feature_settings.FitSettings, *, num_classes: int
) -> classifier_lib.FeatureClassifier:
  """Creates what fits: other units of privacy than the example come in here.

  Args:
    settings: How to fit.
    num_classes: K.
  """
  return classifier_lib.FeatureClassifier(
      settings.method,
      num_classes=num_classes,
      epsilon=settings.epsilon,
      delta=settings.delta,
      clip_norm=settings.clip_norm,
      scaling=settings.scaling,
      split=settings.split,
      seed=settings.seed,
  )


def fit(settings: feature_settings.FitSettings, problem: Problem) -> Fit:
  """Fits and tests a classifier.

  Privacy:
    As the report says; the accuracy and the logits, which are of the test
    examples, cost these their privacy, and the training examples nothing
    more.

  Args:
    settings: How to fit.
    problem: On what.

  Raises:
    HyperparameterError: If a hyperparameter does not fit the examples.
    ValueError: If another value is out of its range.
    UsageError: If features are not finite.
  """
  classifier = create_classifier(settings, num_classes=problem.num_classes)
  try:
    classifier.fit(problem.train.features, problem.train.labels)
  except ValueError as error:
    name = re.match(r"\w*", str(error))[0]
    if name in settings.method.hyperparameter_names():
      raise feature_settings.HyperparameterError(str(error)) from error
    if name == "features":
      raise _bad_file("train", error) from error
    raise
  try:
    logits = classifier.decision_function(problem.test.features)
  except ValueError as error:
    raise _bad_file("test", error) from error
  accuracy = np.mean(logits.argmax(axis=1) == problem.test.labels)
  report = classifier.report_
  assumptions = report.assumptions
  if problem.is_from_labels:
    assumptions = (
        *(text for text in assumptions
          if not text.startswith(_CLASSES_ARE_PUBLIC)),
        CLASSES_FROM_LABELS,
    )  # fmt: skip
  report = dataclasses.replace(
      report,
      assumptions=assumptions,
      not_covered=(*report.not_covered, _TEST_NOT_COVERED),
  )
  return Fit(classifier.coef_, logits, float(accuracy), report)


def find_warnings(
    epsilon: float, delta: float | None, num_examples: int
) -> list[str]:
  """Says where a guarantee is an empty one.

  Args:
    epsilon: Infinity for none.
    delta: At which it holds.
    num_examples: n.
  """
  if epsilon == math.inf or delta * num_examples < 1:
    return []
  return [
      f"delta {delta:g} is not below 1 / {num_examples:,}, one over the number"
      " of training examples: a fit that publishes some examples as they are"
      " could have it"
  ]


def versions() -> dict[str, str]:
  """Returns the versions of the libraries that compute."""
  return {name: importlib.metadata.version(name) for name in _LIBRARIES}


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
  feature_output.check(
      {
          name: getattr(config, name)
          for name in ("output_json", "predictions", "output_weights")
      },
      inputs={"train": [config.train], "test": [config.test]},
      overwrite=config.overwrite,
  )
  settings = config.settings
  problem = read_problem(
      config.train, config.test, num_classes=config.num_classes
  )
  with feature_settings.hyperparameters_from(
      f"--hyperparameters must fit method {settings.method.name}"
  ):
    result = command_line.call_with_flags(fit, settings, problem)
  warnings = find_warnings(
      result.report.epsilon, settings.delta, len(problem.train.labels)
  )
  report = report_lib.json_safe({
      "test_accuracy": result.test_accuracy,
      **problem.size,
      "method": settings.method.name,
      "target_epsilon": settings.epsilon,
      **result.report.to_json(),
      "clip_norm": settings.clip_norm,
      "scaling": settings.scaling,
      "split": settings.split,
      "seed": settings.seed,
      "train": config.train,
      "test": config.test,
      "warnings": warnings,
      "versions": versions(),
  })
  writers = {
      "output_json": functools.partial(
          feature_output.write_json, values=report
      ),
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
  feature_output.write(
      {name: (path, writers[name]) for name, path in paths.items()}
  )
  _tell(result, report, list(paths.values()))


def _tell(result: Fit, report: Mapping[str, Any], paths: list[str]) -> None:
  """Prints the outcome."""
  print(
      f"test accuracy {result.test_accuracy:.4f} ({report['test_size']:,}"
      f" examples, {report['num_classes']:,} classes), {report['method']}"
      f" fitted to {report['train_size']:,}"
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
    words.append(
        f"sampling probability {release['sampling_probability']:.4g}"
    )
  return ", ".join(words)
