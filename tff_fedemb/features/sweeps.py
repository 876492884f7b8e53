"""Many private fits on features: methods, epsilons and seeds.

Program `sweep_features` reads its flags and calls `execute`.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
import dataclasses
import functools
import itertools
import math
import statistics
from typing import Any

from etils import epy
import numpy as np

from tff_fedemb import checks
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import progress as progress_lib
from tff_fedemb.features import budget
from tff_fedemb.features import method as method_lib
from tff_fedemb.features import settings as feature_settings

with epy.lazy_imports():
  import pandas as pd

  from tff_fedemb.features import runs as feature_runs
  from tff_fedemb.plots import figures
  from tff_fedemb.plots import utility_plots

_NUM_FITS = 5
NOT_COVERED = (
  "the sweep as a whole: each epsilon is of one fit alone, and fits on the"
  " same examples add up"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepConfig(feature_settings.CommonConfig):
  """Settings of many fits.

  Attributes:
    methods: Names of methods, each with :NAME=VALUE for hyperparameters that
      differ from their defaults; defaults of None depend on size and noise [all
      that can protect the unit].
    epsilons: Epsilons to stay within; inf: no noise.
    num_fits: Fits of a method and epsilon [5].
    seeds: Seeds of the noise, one for each fit, for repeatable experiments.
      Anyone who knows them can remove the noise [secret].
    output_png: File for the picture [none].

  Raises:
    errors.FieldError: If a value is out of its range.
  """

  methods: tuple[str, ...] | None = None
  epsilons: tuple[str, ...] = ("0.1", "0.5", "1", "2", "4", "8", "inf")
  num_fits: int | None = config_lib.field(None, minimum=1)
  seeds: tuple[str, ...] = ()
  output_png: str | None = None

  def __post_init__(self):
    """Checks the fields.

    Raises:
      errors.FieldError: If seeds are given with unit user or `num_fits`, an
        epsilon or seed is not valid, or there are more methods than a picture
        can show.
    """
    super().__post_init__()
    if self.seeds and self.users:
      must = "not be given with unit user"
      raise errors.FieldError("seeds", must, self.seeds)
    if self.seeds and self.num_fits is not None:
      must = "not be given with seeds, each of which is a fit"
      raise errors.FieldError("num_fits", must, self.num_fits)
    # The properties check each epsilon and seed.
    if not (self.parsed_epsilons and self.parsed_seeds):
      raise errors.FieldError("epsilons", "be given", "none")
    figures.check_count("methods", len(self.chosen_methods))

  @property
  def chosen_methods(self) -> Sequence[str]:
    """Methods as they are named, or all that can protect the unit."""
    return self.method_names if self.methods is None else self.methods

  @property
  def parsed_epsilons(self) -> list[float]:
    """Epsilons, each once, ascending, positive; infinity for no noise.

    Raises:
      errors.FieldError: If a text is not such a number.
    """
    numbers = set()
    for text in self.epsilons:
      number = feature_settings.parse(text, float)
      checks.check_number("epsilons", number, above=0, maximum=math.inf)
      numbers.add(number)
    return sorted(numbers)

  @property
  def parsed_seeds(self) -> list[int] | list[None]:
    """Seed of each fit of a method and epsilon; `None` for secret noise.

    Raises:
      errors.FieldError: If a text is not an integer of at least 0.
    """
    if not self.seeds:
      return [None] * (self.num_fits or _NUM_FITS)
    seeds = []
    for text in dict.fromkeys(self.seeds):
      seed = feature_settings.parse(text, int)
      seeds.append(checks.check_integer("seeds", seed, minimum=0))
    return seeds


def execute(config: SweepConfig) -> utility_plots.Curves:
  """Fits everything, and writes and prints the results.

  Args:
    config: Settings of the fits.

  Returns:
    Accuracies by epsilon, a curve for each method.

  Raises:
    errors.FieldError: If a setting does not suit the data, the methods or the
      files; nothing is written.
    errors.DataError: If a file cannot be used; nothing is written.
  """
  feature_runs.check_files(config, "output_png")
  # Check everything before the first fit.
  for epsilon in config.parsed_epsilons:
    budget.check_target(epsilon, config.delta)
  names = config.chosen_methods
  methods = {x: config.create_method("methods", x) for x in names}
  problem = feature_runs.read_problem(config)
  results, curves = _fit_all(config, problem, methods)
  # The accuracy of a guess that is always the most frequent class.
  counts = np.bincount(problem.test.labels)
  guessing = float(counts.max() / counts.sum())
  warnings = []
  for result in results:
    warnings += result["warnings"]
  values = {
    "methods": names,
    "epsilons": config.parsed_epsilons,
    "delta": config.delta,
    "seeds": config.parsed_seeds if config.seeds else None,
    "num_fits": len(config.parsed_seeds),
    **problem.size,
    "results": results,
    "not_covered": NOT_COVERED,
    "accuracy_of_guessing": guessing,
    "warnings": list(dict.fromkeys(warnings)),
    **feature_runs.describe_settings(config),
  }
  draw = functools.partial(
    utility_plots.plot_measured_by_epsilon,
    panels={"Accuracy against epsilon": curves},
    delta=config.delta,
    utility="test accuracy",
    caption=_describe(config, problem),
    level=("guessing", guessing),
    # Secret noise is drawn anew each time.
    repetition="seed" if config.seeds else "fit",
  )
  progress_lib.say(_to_table(results))
  feature_runs.write(config, values, {"output_png": draw})
  return curves


def _fit_all(
  config: SweepConfig,
  problem: feature_runs.Problem,
  methods: Mapping[str, method_lib.Method],
) -> tuple[list[dict[str, Any]], dict[str, list[figures.Measurement]]]:
  """Fits all methods at all epsilons; returns JSON values, and curves.

  There is a value for each method and epsilon, and a curve for each method.
  """
  order = list(itertools.product(methods, config.parsed_epsilons))
  bar = progress_lib.create_bar("Fitting", unit="epsilons", items=order)
  results = []
  curves = collections.defaultdict(list)
  for entry, epsilon in bar:
    found = _measure(config, problem, methods[entry], epsilon)
    results.append({"method": entry} | found)
    measurement = figures.Measurement(tuple(found["accuracies"]), epsilon)
    # A legend has room for an entry in lines.
    curves[entry.replace(":", ":\n")].append(measurement)
  return results, dict(curves)


def _measure(
  config: SweepConfig,
  problem: feature_runs.Problem,
  method: method_lib.Method,
  epsilon: float,
) -> dict[str, Any]:
  """Fits a method several times; returns JSON values and one fit's report.

  `stdev` is None for a single fit.
  """
  accuracies = []
  for seed in config.parsed_seeds:
    # Only the accuracy of an earlier fit is kept, to save memory.
    fitted, _, accuracy = feature_runs.fit(
      config, problem, method, epsilon=epsilon, seed=seed
    )
    accuracies.append(accuracy)
  stdev = None
  if len(accuracies) > 1:
    stdev = statistics.stdev(accuracies)
  return {
    "target_epsilon": epsilon,
    "mean": statistics.fmean(accuracies),
    "stdev": stdev,
    "accuracies": accuracies,
    **dataclasses.asdict(fitted.report_),
  }


def _describe(config: SweepConfig, problem: feature_runs.Problem) -> str:
  """Returns the caption of the picture: sizes, and the protected unit."""
  size = problem.size
  unit = "example"
  fitted = size.get("train_size")
  if config.users:
    unit = "user"
    fitted = size["num_users"]
  return (
    f"Fitted to {fitted:,} {unit}s, {size['num_classes']:,} classes,"
    f" {size['dim']:,} features an example, tested on"
    f" {size['test_size']:,} examples. One {unit} is protected; each ε is of"
    " one fit alone. Guessing: always the most frequent class."
  )


def _to_table(results: Sequence[Mapping[str, Any]]) -> str:
  """Returns a row for each method, a column for each epsilon, as text.

  A cell has the mean accuracy, and the standard deviation over several fits.
  """
  table: dict[str, dict[str, str]] = collections.defaultdict(dict)
  for result in results:
    text = f"{result['mean']:.4f}"
    if result["stdev"] is not None:
      text += f" ± {result['stdev']:.4f}"
    column = f"epsilon {result['target_epsilon']:g}"
    table[column][result["method"]] = text
  return pd.DataFrame(table).to_string()
