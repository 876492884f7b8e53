"""Private fits on files of features, from the files to the report.

What `classify_features` does once its flags are read, and what
`sweep_features` does many times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
import dataclasses
import importlib.metadata
import math
import pathlib
import sys
from typing import Any

from etils import epy
import numpy as np

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import output_files
from tff_fedemb.features import feature_files
from tff_fedemb.features import method as method_lib
from tff_fedemb.features import registry
from tff_fedemb.features import settings as feature_settings

with epy.lazy_imports():
  from tff_fedemb.features import classifier as classifier_lib

CLASSES_FROM_LABELS = (
  "the number of classes was taken from the labels of the files and is"
  " assumed to be public"
)
_LIBRARIES = (
  *("dp-accounting", "numpy", "scipy", "scikit-learn"),
  *("tensorflow", "tensorflow-federated", "tensorflow-privacy"),
)


@dataclasses.dataclass(frozen=True)
class Problem:
  """Examples to fit on, and to test on.

  Attributes:
    train: Examples to fit on, of which nothing but a fit may be published.
    test: Examples whose accuracy is published.
    files: Their files, by `train` and `test`.
    size: Numbers of them that may be published, by name.
  """

  train: feature_files.FeatureSet
  test: feature_files.FeatureSet
  files: dict[str, str]
  size: dict[str, int]


def read_problem(config: feature_settings.CommonConfig, test: str) -> Problem:
  """Reads the features of a fit.

  Args:
    config: Settings that all fits share.
    test: File to test on.

  Raises:
    errors.DataError: If a file cannot be used.
    errors.FieldError: If a file does not go with the others.
  """
  files = {"train": config.train, "test": test}
  sets = {
    name: feature_files.read_features(path, name=name)
    for name, path in files.items()
  }
  users = sets["train"].users
  if config.users and users is None:
    raise errors.FieldError("train", "hold user with unit user", config.train)
  dim, test_dim = (found.features.shape[1] for found in sets.values())
  if test_dim != dim:
    must = f"have {dim} features an example, as train has"
    raise errors.FieldError("test", must, f"{test_dim} in {test}")
  num_classes = _count_classes(config.num_classes, list(sets.values()))
  # Only those who have the data are told which classes cannot be learned.
  tested = np.unique(sets["test"].labels)
  missing = np.setdiff1d(tested, sets["train"].labels)
  if missing.size:
    print(
      f"warning: {missing.size:,} of the {tested.size:,} classes of the test"
      " file have no example in the training file (which epsilon does not"
      " cover: keep it to yourself)",
      file=sys.stderr,
    )
  size = {
    **_count(sets["train"], config.users is not None),
    "test_size": len(sets["test"].labels),
    "dim": dim,
    "num_classes": num_classes,
  }
  return Problem(**sets, files=files, size=size)


def _count(
  train: feature_files.FeatureSet, is_of_users: bool
) -> dict[str, int]:
  # The number of users is public, and not how many examples they have.
  if is_of_users:
    return {"num_users": len(np.unique(train.users))}
  return {"train_size": len(train.labels)}


def hold_out(problem: Problem, share: float) -> Problem:
  """Returns a problem whose test examples are some of the training examples.

  Privacy:
    A fit protects the examples that are left. Accuracies are of those held out
    and publish them as they are: fits that are to protect these too must be
    of other hyperparameters than those that such accuracies recommend.

  Args:
    problem: Its test examples are not used.
    share: Share of training examples to hold out, in (0, 1), drawn with a fixed
      seed; of users where they are known, with all examples.
  """
  train = problem.train
  names = np.arange(len(train.labels)) if train.users is None else train.users
  names, numbers = np.unique(names, return_inverse=True)
  order = np.random.default_rng(0).permutation(len(names))
  is_held = (order < max(1, round(share * len(names))))[numbers]
  left, held = (
    train.take(np.flatnonzero(rows)) for rows in (~is_held, is_held)
  )
  counted = _count(left, "num_users" in problem.size)
  size = problem.size | counted | {"test_size": len(held.labels)}
  return Problem(left, held, problem.files, size)


def _count_classes(
  num_classes: int | None, sets: list[feature_files.FeatureSet]
) -> int:
  """The number of classes, as it was typed or by the labels."""
  counted = 1 + max(int(found.labels.max()) for found in sets)
  if num_classes is not None:
    if counted > num_classes:
      found = f"{num_classes} and label {counted - 1}"
      raise errors.FieldError("num_classes", "be above all labels", found)
    return num_classes
  num_examples = sum(len(found.labels) for found in sets)
  # Identifiers in place of labels would take memory for each number between.
  if not 2 <= counted <= max(num_examples, 2):
    must = "be given unless labels are 0, 1, ... of two or more classes"
    found = f"labels up to {counted - 1:,} of {num_examples:,} examples"
    raise errors.FieldError("num_classes", must, found)
  return counted


def fit(
  config: feature_settings.CommonConfig,
  problem: Problem,
  method: method_lib.Method,
  *,
  epsilon: float,
  split: Mapping[str, float] | None = None,
  seed: int | None = None,
) -> tuple[classifier_lib.LinearClassifier, np.ndarray, float]:
  """Fits and tests a classifier.

  Privacy:
    As the report says. The accuracy and the logits are of the test examples:
    they cost those their privacy, and the training examples nothing more.

  Args:
    config: Settings that all fits share.
    problem: Examples, with users if these are protected.
    method: Method of the fit.
    epsilon: Target, positive; infinity for no noise.
    split: Shares of the budget by name of release, instead of the method's.
    seed: Seed of the noise, for experiments; `None` for secret ones.

  Returns:
    The classifier, logits of the test examples `[n, num_classes]`, and their
    accuracy in [0, 1].

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
    from tff_fedemb.features.federated import classifier as federated

    data.append(problem.train.users)
    create = federated.FederatedFeatureClassifier
    options = {"settings": config.users}
  classifier = create(
    method,
    num_classes=problem.size["num_classes"],
    epsilon=epsilon,
    delta=config.delta,
    clip_norm=config.clip_norm,
    split=split,
    **options,
  )
  with feature_files.mistakes_in(problem.files["train"]):
    classifier.fit(*data)
  with feature_files.mistakes_in(problem.files["test"]):
    logits = classifier.decision_function(problem.test.features)
  accuracy = np.mean(logits.argmax(axis=1) == problem.test.labels)
  report = classifier.report_
  public = classifier_lib.CLASSES_ARE_PUBLIC
  of_classes = CLASSES_FROM_LABELS if config.num_classes is None else public
  of_users = ", also those of users whose other examples were fitted to"
  of_test = (
    f"the test examples{of_users if config.users else ''}: the accuracy and the"
    " predictions on them are published as they are"
  )
  classifier.report_ = dataclasses.replace(
    report,
    assumptions=tuple(
      of_classes if text == public else text for text in report.assumptions
    ),
    not_covered=(*report.not_covered, of_test),
  )
  return classifier, logits, float(accuracy)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationConfig(feature_settings.CommonConfig):
  """Settings of one fit.

  Attributes:
    test: Features to test on.
    method: Method of the fit.
    hyperparameters: Hyperparameters of the method, NAME=VALUE with commas
      between. With their defaults, where None depends on size and noise.
    epsilon: Epsilon to stay within; inf: no noise.
    split: Shares of the budget, such as covariance=0.3,gradient=0.7 [the
      method's].
    predictions: File (.npz) for predictions [n] and logits [n, num_classes] of
      the test examples [none].
    output_weights: File (.npz) for the weights, coef [num_classes, dim] [none].
  """

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
    config: Settings of the fit.

  Raises:
    errors.FieldError: If it cannot be done; nothing is written then.
    errors.DataError: If a file cannot be used; neither then.
  """
  seed = getattr(config.protection, "seed", None)
  shares = feature_settings.parse_pairs("split", config.split)
  split = {
    name: feature_settings.parse(share, float) for name, share in shares.items()
  }
  method = config.create_method(
    config.method,
    "hyperparameters",
    config.hyperparameters,
    epsilons=[config.epsilon],
  )
  outputs = ("output_json", "predictions", "output_weights")
  output_files.check(
    {name: getattr(config, name) for name in outputs},
    inputs={"train": [config.train], "test": [config.test]},
    overwrite=config.overwrite,
  )
  problem = read_problem(config, config.test)
  classifier, logits, accuracy = fit(
    config, problem, method, epsilon=config.epsilon, split=split, seed=seed
  )
  report = {
    "test_accuracy": accuracy,
    **problem.size,
    "method": config.method,
    "target_epsilon": config.epsilon,
    **classifier.report_.to_json(),
    "split": split,
    "seed": seed,
    "rounds": sum(each["count"] for each in classifier.report_.releases)
    if config.users
    else None,
    **problem.files,
    **describe_settings(config),
  }
  writers = {
    "predictions": output_files.arrays_writer(
      predictions=logits.argmax(axis=1), logits=logits
    ),
    "output_weights": output_files.arrays_writer(coef=classifier.coef_),
  }
  write(config, report, writers, _describe(report))


def describe_settings(config: feature_settings.CommonConfig) -> dict[str, Any]:
  """Returns JSON values of what is common to all fits, and of the libraries."""
  return {
    "clip_norm": config.clip_norm,
    "runtime": config.users.runtime if config.users else None,
    "versions": {name: importlib.metadata.version(name) for name in _LIBRARIES},
  }


def write(
  config: feature_settings.CommonConfig,
  values: Mapping[str, Any],
  writers: Mapping[str, Callable[[pathlib.Path], object]],
  text: str,
) -> None:
  """Writes results, those in JSON first, and prints them.

  Args:
    config: Has their paths.
    values: For JSON, with `warnings`.
    writers: Writers of other files by the fields with their paths, which may
      be None.
    text: Text to print before the warnings.
  """
  writers = {"output_json": output_files.json_writer(values), **writers}
  paths = {name: getattr(config, name) for name in writers}
  output_files.write(
    {name: (path, writers[name]) for name, path in paths.items() if path}
  )
  print(text)
  for warning in values["warnings"]:
    print(f"warning: {warning}")
  print(f"Written to {' and '.join(filter(None, paths.values()))}.")


def _describe(report: Mapping[str, Any]) -> str:
  """The outcome of a fit in three lines."""
  fitted = f"{report.get('train_size', 0):,} examples"
  if "num_users" in report:
    fitted = f"{report['num_users']:,} users"
  cost = "epsilon = inf: no noise, no privacy"
  epsilon = report["epsilon_with_secret_noise"]
  if epsilon != "inf":
    cost = (
      f"epsilon = {epsilon:.4f} at delta = {report['delta']:g}"
      f" ({report['accountant']}), {report['neighboring_relation']}"
    )
    if report["epsilon"] == "inf":
      cost = (
        "epsilon = inf: the noise is from the seed, which may be known (with"
        f" secret noise: {cost})"
      )
  releases = []
  for release in report["releases"]:
    count, multiplier = release["count"], release["noise_multiplier"]
    times = "once" if count == 1 else f"{count:,} times"
    text = f"{release['name']} {times}, noise multiplier {multiplier:.4g}"
    releases.append(text)
  return (
    f"test accuracy {report['test_accuracy']:.4f} ({report['test_size']:,}"
    f" examples, {report['num_classes']:,} classes), {report['method']}"
    f" fitted to {fitted}\n{cost}\nreleases: {'; '.join(releases)}"
  )
