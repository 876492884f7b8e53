"""Many private fits on features: methods, epsilons and seeds.

What `sweep_features` does once its flags are read.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import functools
import itertools
import math
from typing import Any

from etils import epy
import numpy as np

from tff_fedemb import checks
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import output_files
from tff_fedemb import progress as progress_lib
from tff_fedemb.features import method as method_lib
from tff_fedemb.features import settings as feature_settings

with epy.lazy_imports():
  import pandas as pd

  from tff_fedemb.features import runs as feature_runs
  from tff_fedemb.plots import figures
  from tff_fedemb.plots import utility_plots

NOT_COVERED = (
  "the sweep as a whole: each epsilon is of one fit alone, and fits on the"
  " same examples add up"
)
# All fits of a method and epsilon have these values in common.
_OF_EACH_FIT = (
  *("epsilon", "epsilon_with_secret_noise", "accountant"),
  *("releases", "hyperparameters"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepConfig(feature_settings.CommonConfig):
  """What to fit, on what, and where to write.

  Attributes:
    train: Features to fit on.
    test: Features to test on.
    tuning_share: Share of train that is held out and tested on instead of test,
      of its users where it has them. What is chosen by these accuracies is not
      private for the examples held out: leave them out of later fits, or say
      so.
    methods: How to fit: names, each with :NAME=VALUE for its hyperparameters if
      they are not to be the defaults, where None depends on size and noise [all
      that can protect the unit].
    epsilons: Epsilons to stay within; inf: no noise.
    num_fits: Fits of a method and epsilon.
    seeds: Seeds of the noise, one for each fit, for experiments that are to be
      repeated: who knows them can take the noise away [secret].
    output_png: File for the picture [none].

  Raises:
    errors.FieldError: If a value is out of its range.
  """

  train: str
  test: str | None = None
  tuning_share: float | None = config_lib.field(None, above=0, below=1)
  methods: tuple[str, ...] | None = None
  epsilons: tuple[str, ...] = ("0.1", "0.5", "1", "2", "4", "8", "inf")
  num_fits: int = config_lib.field(5, minimum=1)
  seeds: tuple[str, ...] = ()
  output_png: str | None = None

  def __post_init__(self):
    super().__post_init__()
    if (self.test is None) == (self.tuning_share is None):
      raise errors.FieldError(
        "test", "be given, or tuning_share, one of them", self.test or "none"
      )
    if self.seeds and self.users:
      raise errors.FieldError(
        "seeds", "not be given with unit user", self.seeds
      )
    given = {"methods": self.entries, "epsilons": self.parsed_epsilons}
    if self.seeds:
      given["seeds"] = self.parsed_seeds
    for name, values in given.items():
      if not values or len(set(values)) < len(values):
        raise errors.FieldError(
          name, "be given, each once", repr(",".join(map(str, values)))
        )
    figures.check_count("methods", len(self.entries))
    for seed in self.parsed_seeds:
      if seed is not None:
        checks.check_integer("seeds", seed, minimum=0)

  @property
  def entries(self) -> tuple[str, ...]:
    """Methods to fit, such as 'sgd' or 'sgd:steps=10:loss=sigmoid'."""
    if self.methods is not None:
      return self.methods
    return tuple(feature_settings.method_names(of_users=self.users is not None))

  @property
  def parsed_epsilons(self) -> tuple[float, ...]:
    """Ascending."""
    return tuple(
      sorted(feature_settings.parse_numbers("epsilons", self.epsilons, float))
    )

  @property
  def parsed_seeds(self) -> tuple[int | None, ...]:
    """One for each fit of a method and epsilon; `None`: secret."""
    if not self.seeds:
      return (None,) * self.num_fits
    return feature_settings.parse_numbers("seeds", self.seeds, int)


def execute(config: SweepConfig) -> list[utility_plots.Curve]:
  """Fits everything, and writes and prints the results.

  Args:
    config: What to do.

  Returns:
    Accuracies by epsilon, a curve for each method.

  Raises:
    errors.FieldError: If it cannot be done; nothing is written then.
    errors.DataError: If a file cannot be used; neither then.
  """
  inputs = {"train": [config.train]}
  if config.test is not None:
    inputs["test"] = [config.test]
  output_files.check(
    {"output_json": config.output_json, "output_png": config.output_png},
    inputs=inputs,
    overwrite=config.overwrite,
  )
  methods = _create_methods(config)
  problem = feature_runs.read_problem(
    config, config.train, config.test or config.train
  )
  if config.tuning_share is not None:
    problem = feature_runs.hold_out(problem, config.tuning_share)
  fits = _fit_all(config, methods, problem)
  points = {
    key: figures.Measurement(tuple(same.accuracy), key[1])
    for key, same in fits.groupby(["method", "epsilon"], sort=False)
  }
  values = _to_json(config, problem, fits, points)
  curves = [
    utility_plots.Curve(
      entry.replace(":", ":\n"),
      tuple(points[entry, epsilon] for epsilon in config.parsed_epsilons),
    )
    for entry in methods
  ]
  draw = functools.partial(
    utility_plots.plot_measured_by_epsilon,
    panels={"Accuracy against epsilon": curves},
    delta=config.delta,
    utility="test accuracy",
    caption=_describe(config, problem),
    level=("guessing", values["accuracy_of_guessing"]),
    # The noise of users' fits is drawn anew each time.
    repetition="seed" if config.seeds else "fit",
  )
  feature_runs.write(config, values, {"output_png": draw}, _to_table(points))
  return curves


def _create_methods(config: SweepConfig) -> dict[str, method_lib.Method]:
  """All methods by what was typed; mistakes are found before any fit."""
  names = feature_settings.method_names(of_users=config.users is not None)
  methods = {}
  for entry in config.entries:
    name, *items = entry.split(":")
    if name not in names:
      raise errors.FieldError(
        "methods",
        f"be among {', '.join(names)}, each with :NAME=VALUE for its"
        " hyperparameters",
        repr(entry),
      )
    methods[entry] = config.create_method(
      name, "methods", items, epsilons=config.parsed_epsilons
    )
  return methods


def _fit_all(
  config: SweepConfig,
  methods: Mapping[str, method_lib.Method],
  problem: feature_runs.Problem,
) -> pd.DataFrame:
  """A row for each fit, of ascending epsilons: its accuracy and its report."""
  order = itertools.product(
    config.parsed_epsilons, methods, config.parsed_seeds
  )
  rows = []
  for epsilon, entry, seed in progress_lib.create_bar(
    "Fitting", unit="fits", items=list(order)
  ):
    # The rest of a fit is not kept: it takes memory.
    classifier, _, accuracy = feature_runs.fit(
      config, problem, methods[entry], epsilon=epsilon, seed=seed
    )
    rows.append((entry, epsilon, accuracy, classifier.report_))
  columns = ["method", "epsilon", "accuracy", "report"]
  return pd.DataFrame(rows, columns=columns)


def _to_json(
  config: SweepConfig,
  problem: feature_runs.Problem,
  fits: pd.DataFrame,
  points: Mapping[tuple[str, float], figures.Measurement],
) -> dict[str, Any]:
  def join(name: str) -> list[str]:
    texts = [text for report in fits.report for text in getattr(report, name)]
    return list(dict.fromkeys(texts))

  def to_result(entry: str, epsilon: float) -> dict[str, Any]:
    point = points[entry, epsilon]
    of_point = fits[(fits.method == entry) & (fits.epsilon == epsilon)]
    return {
      "method": entry,
      "target_epsilon": epsilon,
      "mean": point.mean,
      "stdev": point.stdev if len(point.values) > 1 else None,
      "accuracies": point.values,
      **{name: getattr(of_point.report.iloc[0], name) for name in _OF_EACH_FIT},
    }

  counts = np.bincount(problem.test.labels)
  return {
    "methods": config.entries,
    "epsilons": config.parsed_epsilons,
    "delta": config.delta,
    "tuning_share": config.tuning_share,
    "seeds": config.parsed_seeds if config.seeds else None,
    "num_fits": len(config.parsed_seeds),
    **problem.files,
    **problem.size,
    "results": list(
      itertools.starmap(
        to_result, itertools.product(config.entries, config.parsed_epsilons)
      )
    ),
    "unit": fits.report[0].unit,
    "neighboring_relation": fits.report[0].neighboring_relation,
    "assumptions": join("assumptions"),
    "not_covered": [*join("not_covered"), NOT_COVERED],
    # Always the class that most test examples have.
    "accuracy_of_guessing": float(counts.max() / counts.sum()),
    "warnings": join("warnings"),
    **feature_runs.describe_settings(config),
  }


def _describe(config: SweepConfig, problem: feature_runs.Problem) -> str:
  """The caption of the picture."""
  unit = "user" if config.users else "example"
  fitted = problem.size["num_users" if config.users else "train_size"]
  return (
    f"Fitted to {fitted:,} {unit}s, {problem.size['num_classes']:,} classes,"
    f" {problem.size['dim']:,} features an example, tested on"
    f" {problem.size['test_size']:,} examples. One {unit} is protected; each ε"
    " is of one fit alone. Guessing: always the most frequent class."
  )


def _to_table(
  points: Mapping[tuple[str, float], figures.Measurement],
) -> str:
  """A Markdown table: a row for each method, a column for each epsilon."""
  table: dict[str, dict[str, str]] = {}
  for (entry, epsilon), point in points.items():
    name = "no noise" if epsilon == math.inf else f"epsilon {epsilon:g}"
    deviation = f" ± {point.stdev:.4f}" if len(point.values) > 1 else ""
    cells = table.setdefault(entry, {"method": entry})
    cells[name] = f"{point.mean:.4f}{deviation}"
  rows = [list(next(iter(table.values())))]
  rows += [list(cells.values()) for cells in table.values()]
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  rows.insert(1, ["-" * width for width in widths])
  return "\n".join(
    "| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows
  )
