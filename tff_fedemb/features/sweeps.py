"""Many private fits on features: methods, epsilons and seeds.

What `sweep_features` does once its flags are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
  from tff_fedemb.features import classifier
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
  """Settings of many fits.

  Attributes:
    test: Features to test on.
    tuning_share: Share of train that is held out and tested on instead of test,
      of its users where it has them. What is chosen by these accuracies is not
      private for the examples held out: leave them out of later fits, or say
      so.
    methods: Methods: names, each with :NAME=VALUE for its hyperparameters if
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

  test: str | None = None
  tuning_share: float | None = config_lib.field(None, above=0, below=1)
  methods: tuple[str, ...] | None = None
  epsilons: tuple[str, ...] = ("0.1", "0.5", "1", "2", "4", "8", "inf")
  num_fits: int = config_lib.field(5, minimum=1)
  seeds: tuple[str, ...] = ()
  output_png: str | None = None

  def __post_init__(self):
    super().__post_init__()
    checks.check_one_of(test=self.test, tuning_share=self.tuning_share)
    if self.seeds and self.users:
      raise errors.FieldError(
        "seeds", "not be given with unit user", self.seeds
      )
    if self.methods is None:
      names = feature_settings.method_names(of_users=self.users is not None)
      object.__setattr__(self, "methods", tuple(names))
    given = {"methods": self.methods, "epsilons": self.parsed_epsilons}
    if self.seeds:
      given["seeds"] = self.parsed_seeds
    for name, values in given.items():
      if not values or len(set(values)) < len(values):
        found = repr(",".join(map(str, values)))
        raise errors.FieldError(name, "be given, each once", found)
    figures.check_count("methods", len(self.methods))

  @property
  def parsed_epsilons(self) -> list[float]:
    """Epsilons, ascending."""
    bounds = {"above": 0, "maximum": math.inf}
    numbers = [feature_settings.parse(x, float) for x in self.epsilons]
    return sorted(checks.check_number("epsilons", x, **bounds) for x in numbers)

  @property
  def parsed_seeds(self) -> list[int] | list[None]:
    """Seed of each fit of a method and epsilon; `None`: secret."""
    if not self.seeds:
      return [None] * self.num_fits
    numbers = [feature_settings.parse(x, int) for x in self.seeds]
    return [checks.check_integer("seeds", x, minimum=0) for x in numbers]


@dataclasses.dataclass
class _Point:
  """Accuracies of the fits of a method and epsilon, and the report of one."""

  report: classifier.FitReport
  accuracies: list[float] = dataclasses.field(default_factory=list)


def execute(config: SweepConfig) -> utility_plots.Curves:
  """Fits everything, and writes and prints the results.

  Args:
    config: Settings of the fits.

  Returns:
    Accuracies by epsilon, a curve for each method.

  Raises:
    errors.FieldError: If it cannot be done; nothing is written then.
    errors.DataError: If a file cannot be used; neither then.
  """
  output_files.check(
    {"output_json": config.output_json, "output_png": config.output_png},
    inputs={
      "train": [config.train],
      "test": [config.test] if config.test else [],
    },
    overwrite=config.overwrite,
  )
  methods = _create_methods(config)
  problem = feature_runs.read_problem(config, config.test or config.train)
  if config.tuning_share is not None:
    problem = feature_runs.hold_out(problem, config.tuning_share)
  points = _fit_all(config, methods, problem)
  curves = {
    entry: [
      figures.Measurement(tuple(points[entry, epsilon].accuracies), epsilon)
      for epsilon in config.parsed_epsilons
    ]
    for entry in methods
  }
  drawn = {name.replace(":", ":\n"): curve for name, curve in curves.items()}
  values = _to_json(config, problem, points, curves)
  draw = functools.partial(
    utility_plots.plot_measured_by_epsilon,
    panels={"Accuracy against epsilon": drawn},
    delta=config.delta,
    utility="test accuracy",
    caption=_describe(config, problem),
    level=("guessing", values["accuracy_of_guessing"]),
    # The noise of users' fits is drawn anew each time.
    repetition="seed" if config.seeds else "fit",
  )
  feature_runs.write(config, values, {"output_png": draw}, _to_table(curves))
  return drawn


def _create_methods(config: SweepConfig) -> dict[str, method_lib.Method]:
  """All methods by what was typed; mistakes are found before any fit."""
  names = feature_settings.method_names(of_users=config.users is not None)
  methods = {}
  for entry in config.methods:
    name, *items = entry.split(":")
    checks.check_choice("methods", name, names)
    methods[entry] = config.create_method(
      name, "methods", items, epsilons=config.parsed_epsilons
    )
  return methods


def _fit_all(
  config: SweepConfig,
  methods: Mapping[str, method_lib.Method],
  problem: feature_runs.Problem,
) -> dict[tuple[str, float], _Point]:
  """Points by method and epsilon, of ascending epsilons."""
  order = itertools.product(
    config.parsed_epsilons, methods, config.parsed_seeds
  )
  points: dict[tuple[str, float], _Point] = {}
  for epsilon, entry, seed in progress_lib.create_bar(
    "Fitting", unit="fits", items=list(order)
  ):
    # The rest of a fit is not kept: it takes memory.
    fitted, _, accuracy = feature_runs.fit(
      config, problem, methods[entry], epsilon=epsilon, seed=seed
    )
    point = points.setdefault((entry, epsilon), _Point(fitted.report_))
    point.accuracies.append(accuracy)
  return points


def _to_json(
  config: SweepConfig,
  problem: feature_runs.Problem,
  points: Mapping[tuple[str, float], _Point],
  curves: Mapping[str, Sequence[figures.Measurement]],
) -> dict[str, Any]:
  def join(name: str) -> list[str]:
    texts = [
      x for point in points.values() for x in getattr(point.report, name)
    ]
    return list(dict.fromkeys(texts))

  counts = np.bincount(problem.test.labels)
  first = next(iter(points.values())).report
  return {
    "methods": config.methods,
    "epsilons": config.parsed_epsilons,
    "delta": config.delta,
    "tuning_share": config.tuning_share,
    "seeds": config.parsed_seeds if config.seeds else None,
    "num_fits": len(config.parsed_seeds),
    **problem.files,
    **problem.size,
    "results": [
      {
        "method": entry,
        "target_epsilon": point.epsilon,
        "mean": point.mean,
        "stdev": point.stdev if len(point.values) > 1 else None,
        "accuracies": point.values,
        **{
          name: getattr(points[entry, point.epsilon].report, name)
          for name in _OF_EACH_FIT
        },
      }
      for entry, curve in curves.items()
      for point in curve
    ],
    "unit": first.unit,
    "neighboring_relation": first.neighboring_relation,
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


def _to_table(curves: Mapping[str, Sequence[figures.Measurement]]) -> str:
  """A Markdown table: a row for each method, a column for each epsilon."""
  rows = [["method"]]
  for point in next(iter(curves.values())):
    is_noisy = point.epsilon < math.inf
    rows[0].append(f"epsilon {point.epsilon:g}" if is_noisy else "no noise")
  for entry, curve in curves.items():
    cells = [entry]
    for point in curve:
      deviation = f" ± {point.stdev:.4f}" if len(point.values) > 1 else ""
      cells.append(f"{point.mean:.4f}{deviation}")
    rows.append(cells)
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  rows.insert(1, ["-" * width for width in widths])
  return "\n".join(
    "| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows
  )
