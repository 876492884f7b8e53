"""Private fits on files of features, from the files to the report.

Programs `classify_features`, for one fit, and `sweep_features`, for many, use
this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import math
import pathlib
import sys
from typing import Any

from etils import epy
import numpy as np

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import progress
from tff_fedemb.features import budget
from tff_fedemb.features import feature_files
from tff_fedemb.features import method as method_lib
from tff_fedemb.features import registry
from tff_fedemb.features import settings as feature_settings
from tff_fedemb.records import output_files

with epy.lazy_imports():
  from tff_fedemb.features import classifier as classifier_lib


@dataclasses.dataclass(frozen=True)
class Problem:
  """Examples to fit on, and to test on.

  Attributes:
    train: Examples to fit on; nothing but a fit may be published about them.
    test: Examples whose accuracy is published.
    size: Counts that may be published, by name: `train_size` or `num_users`,
      `test_size`, `dim` and `num_classes`.
  """

  train: feature_files.FeatureSet
  test: feature_files.FeatureSet
  size: dict[str, int]


def read_problem(config: feature_settings.CommonConfig) -> Problem:
  """Reads the features of a fit.

  It prints a warning to standard error if classes to test on have no example to
  fit on; no guarantee covers that warning.

  Args:
    config: Settings with the files, and the protected unit.

  Returns:
    The examples, and the counts that may be published.

  Raises:
    errors.DataError: If a file cannot be used.
    errors.FieldError: If users are to be protected and the training file has
      none, or labels do not tell the number of classes.
  """
  train = feature_files.read_features(config.train)
  if config.tuning_share:
    train, test = hold_out(train, config.tuning_share)
  else:
    test = feature_files.read_features(str(config.test))
    with feature_files.mistakes_in(str(config.test)):
      test.check_numbers_classes_as(train)
  # This is printed, not written: which classes have no example is private.
  tested = np.unique(test.labels)
  missing = np.setdiff1d(tested, train.labels)
  if missing.size:
    print(
      f"warning: {missing.size:,} of {tested.size:,} classes to test on have no"
      " example to fit on (which epsilon does not cover: keep it to yourself)",
      file=sys.stderr,
    )
  # The number of users is public; how many examples they have is not.
  if config.users is None:
    size = {"train_size": len(train.labels)}
  elif train.users is None:
    raise errors.FieldError("train", "hold user with unit user", config.train)
  else:
    size = {"num_users": len(np.unique(train.users))}
  size["test_size"] = len(test.labels)
  size["dim"] = train.features.shape[1]
  labels = np.concatenate([train.labels, test.labels])
  size["num_classes"] = config.num_classes or _count_classes(labels)
  return Problem(train, test, size)


def hold_out(
  examples: feature_files.FeatureSet,
  share: float,
) -> tuple[feature_files.FeatureSet, feature_files.FeatureSet]:
  """Splits examples into those to fit on and those to test on.

  Privacy:
    A fit protects the remaining examples. Accuracies on the held-out examples
    have no noise: if a later fit must protect these too, its hyperparameters
    must not be chosen by such accuracies.

  Args:
    examples: All of them.
    share: Share of examples to hold out, in (0, 1), drawn with a fixed seed. If
      users are known, that share of users, with all their examples.

  Returns:
    The remaining examples, and those held out, at least one each.

  Raises:
    errors.FieldError: If there are not two examples or users to split.
  """
  units = examples.users
  if units is None:
    units = np.arange(len(examples.labels))
  units, numbers = np.unique(units, return_inverse=True)
  order = np.random.default_rng(0).permutation(len(units))
  if len(units) < 2:
    must = "be given with two or more examples, or users"
    raise errors.FieldError("tuning_share", must, f"{len(units)} of them")
  num_held = min(max(1, round(share * len(units))), len(units) - 1)
  is_held = (order < num_held)[numbers]
  return examples.take(~is_held), examples.take(is_held)


def _count_classes(labels: np.ndarray) -> int:
  """Returns the number of classes, one more than the largest label.

  Raises:
    errors.FieldError: If it is below 2, or exceeds the number of examples, as
      with identifiers for labels.
  """
  counted = 1 + int(labels.max())
  # With identifiers as labels, memory would grow with the largest identifier.
  if not 2 <= counted <= max(len(labels), 2):
    must = "be given unless labels are 0, 1, ... of two or more classes"
    found = f"labels up to {counted - 1:,} of {len(labels):,} examples"
    raise errors.FieldError("num_classes", must, found)
  return counted


def fit(
  config: feature_settings.CommonConfig,
  problem: Problem,
  method: method_lib.Method,
  *,
  epsilon: float,
  seed: int | None = None,
) -> tuple[classifier_lib.FeatureClassifier, np.ndarray, float]:
  """Fits and tests a classifier.

  Privacy:
    As in the classifier's report. Accuracy and logits reveal the test examples;
    they cost the training examples no further privacy.

  Args:
    config: Settings that all fits share.
    problem: Examples, with users if these are protected.
    method: Method of the fit.
    epsilon: Target, in (0, 100]; infinity for no noise.
    seed: Seed of the noise, for experiments; `None` for secret noise.

  Returns:
    The classifier, logits of the test examples `[n, num_classes]`, and their
    accuracy in [0, 1].

  Raises:
    errors.FieldError: If a value is out of its range.
    errors.DataError: If features are not finite, the files have features of
      different lengths, or a user has no name.
  """
  train = problem.train
  test = problem.test
  classifier = classifier_lib.FeatureClassifier(
    method,
    num_classes=problem.size["num_classes"],
    epsilon=epsilon,
    delta=config.delta,
    clip_norm=config.clip_norm,
    seed=seed,
    users=config.users,
  )
  with feature_files.mistakes_in(config.train):
    classifier.fit(train.features, train.labels, train.users)
  with feature_files.mistakes_in(config.test or config.train):
    logits = classifier.decision_function(test.features)
  accuracy = np.mean(logits.argmax(axis=1) == test.labels)
  return classifier, logits, float(accuracy)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationConfig(feature_settings.CommonConfig):
  """Settings of one fit.

  Attributes:
    method: Method of the fit.
    hyperparameters: Hyperparameters of the method, NAME=VALUE, separated by
      commas. Defaults of None depend on size and noise.
    epsilon: Epsilon to stay within; inf: no noise.
    predictions: File (.npz) for predictions [n] and logits [n, num_classes] of
      the test examples [none].
    output_weights: File (.npz) for the weights, coef [num_classes, dim] [none].
  """

  method: str = config_lib.field("feature_covariance", choices=registry.METHODS)
  hyperparameters: tuple[str, ...] = ()
  epsilon: float = config_lib.field(above=0, maximum=math.inf)
  predictions: str | None = None
  output_weights: str | None = None


def execute(config: ClassificationConfig) -> None:
  """Fits a classifier, tests it, and writes and prints the result.

  Args:
    config: Settings of the fit.

  Raises:
    errors.FieldError: If a setting does not suit the data, the method or the
      files; nothing is written.
    errors.DataError: If a file cannot be used; nothing is written.
  """
  text = ":".join((config.method,) + config.hyperparameters)
  method = config.create_method("method", text)
  check_files(config, "predictions", "output_weights")
  budget.check_target(config.epsilon, config.delta)
  problem = read_problem(config)
  classifier, logits, accuracy = fit(
    config, problem, method, epsilon=config.epsilon, seed=config.seed
  )
  report = {
    "test_accuracy": accuracy,
    **problem.size,
    "method": config.method,
    "target_epsilon": config.epsilon,
    **dataclasses.asdict(classifier.report_),
    **describe_settings(config),
  }
  writers = {
    "predictions": output_files.arrays_writer(
      predictions=logits.argmax(axis=1), logits=logits
    ),
    "output_weights": output_files.arrays_writer(coef=classifier.coef_),
  }
  write(config, report, writers, _describe(report))


def check_files(config: feature_settings.CommonConfig, *others: str) -> None:
  """Checks before a fit that all its files can be written.

  Args:
    config: Settings with the paths.
    *others: Fields besides `output_json` that have a path, or `None`.

  Raises:
    errors.FieldError: If a file is there and `overwrite` is not set, is one of
      those to read, or cannot be written.
  """
  outputs = {"output_json": config.output_json}
  for name in others:
    outputs[name] = getattr(config, name)
  inputs = {"train": [config.train]}
  if config.test:
    inputs["test"] = [config.test]
  output_files.check(outputs, inputs=inputs, overwrite=config.overwrite)


def describe_settings(config: feature_settings.CommonConfig) -> dict[str, Any]:
  """Returns settings of a fit for its report.

  Args:
    config: Settings of the fit.

  Returns:
    JSON values by name: the files, the clip norm, and the fields of
      `protection`.
  """
  return {
    "train": config.train,
    "test": config.test,
    "tuning_share": config.tuning_share,
    "clip_norm": config.clip_norm,
    **dataclasses.asdict(config.protection),
  }


def write(
  config: feature_settings.CommonConfig,
  values: Mapping[str, Any],
  writers: Mapping[str, Callable[[pathlib.Path], object]],
  lines: Sequence[str] = (),
) -> None:
  """Writes results, those in JSON first, and prints up to eight lines.

  Args:
    config: Settings with the paths.
    values: Values for the JSON file, with `warnings`.
    writers: Writers of other files, by the field with the path of each, which
      may be `None`.
    lines: First lines to print.

  Raises:
    errors.FieldError: If a file cannot be written; none is written then.
  """
  outputs = {}
  all_writers = {"output_json": output_files.json_writer(values), **writers}
  for name, writer in all_writers.items():
    path = getattr(config, name)
    if path:
      outputs[name] = (path, writer)
  output_files.write(outputs)
  paths = " and ".join(path for path, _ in outputs.values())
  rest = f"Written to {paths}."
  progress.say(progress.end(lines, warnings=values["warnings"], rest=rest))


def _describe(report: Mapping[str, Any]) -> list[str]:
  """Describes the accuracy of a fit, and its guarantee, in two lines."""
  fitted = f"{report.get('train_size', 0):,} examples"
  if "num_users" in report:
    fitted = f"{report['num_users']:,} users"
  cost = f"epsilon = {report['epsilon']:.4f}, {report['neighboring_relation']}"
  if report["epsilon"] < math.inf:
    cost += f", at delta = {report['delta']:g} ({report['accountant']})"
  return [
    f"test accuracy {report['test_accuracy']:.4f} ({report['test_size']:,}"
    f" examples, {report['num_classes']:,} classes), {report['method']}"
    f" fitted to {fitted}",
    cost,
  ]
