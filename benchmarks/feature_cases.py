"""Accuracy of private fits on made-up unit vectors, over classes and epsilons.

A class is a random direction; an example is the sum of that and of a normal
vector about `spread` times as long, scaled to length 1.
"""

import dataclasses
import pathlib
import tempfile

import numpy as np

from tff_fedemb import checks
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.features import feature_files
from tff_fedemb.features import settings
from tff_fedemb.features import sweeps
from tff_fedemb.plots import utility_plots
from tff_fedemb.records import output_files

_NUM_TESTED = 2_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureBenchmarkConfig(config_lib.Config):
  """Settings of the benchmark of fits.

  Attributes:
    num_classes: Numbers of classes, a problem and a panel for each.
    num_examples: Examples to fit on, of all classes together.
    dim: Numbers of a vector.
    spread: Length of what an example adds to the direction of its class.
    methods: How to fit, as `sweep_features` is told.
    epsilons: Epsilons to stay within.
    delta: Delta of each fit.
    num_fits: Fits of a method and epsilon, with seeds 1, 2, ...
    output: Beginning of the names of files to write: .png for the picture,
      _K.json for what `sweep_features` writes of K classes.
  """

  num_classes: tuple[str, ...] = ("10", "100", "1000")
  num_examples: int = config_lib.field(10_000, minimum=1)
  dim: int = config_lib.field(128, minimum=1)
  spread: float = config_lib.field(1.0, minimum=0)
  methods: tuple[str, ...] = ("least_squares", "sgd:loss=sigmoid", "sgd")
  epsilons: tuple[str, ...] = ("0.05", "0.1", "0.5", "1", "2", "8")
  delta: float = config_lib.field(1e-5, above=0, below=1)
  num_fits: int = config_lib.field(2, minimum=1)
  output: str


def draw(
  config: FeatureBenchmarkConfig, num_classes: int
) -> tuple[feature_files.FeatureSet, feature_files.FeatureSet]:
  """Returns examples to fit on, and others of the same classes to test on."""
  generator = np.random.default_rng(0)
  shape = (config.num_examples + _NUM_TESTED, config.dim)
  means = generator.standard_normal([num_classes, config.dim])
  means /= np.linalg.norm(means, axis=1, keepdims=True)
  means = means.astype("f4")
  labels = generator.integers(num_classes, size=shape[0])
  features = generator.standard_normal(shape, "f4")
  features *= config.spread / config.dim**0.5
  features += means[labels]
  features /= np.linalg.norm(features, axis=1, keepdims=True)
  examples = feature_files.FeatureSet(features, labels)
  first = slice(None, config.num_examples)
  return examples.take(first), examples.take(slice(first.stop, None))


def execute(config: FeatureBenchmarkConfig) -> None:
  """Fits everything, prints a table for each problem, and writes.

  Raises:
    errors.FieldError: If a value is out of its range.
  """
  output_files.check({"output": f"{config.output}.png"}, overwrite=True)
  counts = [
    checks.check_integer("num_classes", settings.parse(x, int), minimum=2)
    for x in config.num_classes
  ]
  if not counts:
    raise errors.FieldError("num_classes", "have a number", "none")
  utility_plots.plot_measured_by_epsilon(
    f"{config.output}.png",
    {f"{count:,} classes": _sweep(config, count) for count in counts},
    delta=config.delta,
    utility="test accuracy",
    caption=(
      f"Made-up unit vectors: {config.num_examples:,} examples of {config.dim}"
      " numbers, one protected; each ε is of one fit alone."
    ),
  )


def _sweep(
  config: FeatureBenchmarkConfig, num_classes: int
) -> utility_plots.Curves:
  """Fits to a problem; returns its curves."""
  with tempfile.TemporaryDirectory() as directory:
    paths = [pathlib.Path(directory, f"{name}.npz") for name in ("fit", "test")]
    for path, examples in zip(paths, draw(config, num_classes), strict=True):
      feature_files.write_features(path, examples)
    return sweeps.execute(
      sweeps.SweepConfig(
        train=str(paths[0]),
        test=str(paths[1]),
        num_classes=num_classes,
        methods=config.methods,
        epsilons=config.epsilons,
        delta=config.delta,
        seeds=tuple(str(1 + number) for number in range(config.num_fits)),
        output_json=f"{config.output}_{num_classes}.json",
        overwrite=True,
      )
    )
