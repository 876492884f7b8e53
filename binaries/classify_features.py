r"""Fits a private linear classifier on files of features, and tests it.

  python -m binaries.classify_features --train=train.npz --test=test.npz \
    --method=feature_covariance --epsilon=2 --delta=1e-6 \
    --output_json=result.json

Files are .npz or .tfrecord with features and labels of examples. One example is
protected, or with --unit=user all examples of a user; the file gets the
accuracy, and what each release cost.
"""

from absl import flags

from binaries import command_line
from binaries import config_flags
from tff_fedemb.features import runs as feature_runs
from tff_fedemb.features import settings as feature_settings

_CONFIG = config_flags.ConfigFlags(
  feature_runs.ClassificationConfig,
  details={"hyperparameters": feature_settings.describe_methods()},
)
_UNIT = flags.DEFINE_string("unit", "example", feature_settings.UNIT_HELP)
_OF_UNIT = config_flags.ChoiceFlags("unit", feature_settings.UNITS)


def main() -> None:
  """Runs the fit that the flags describe."""
  protection = _OF_UNIT.create(_UNIT.value)
  feature_runs.execute(_CONFIG.create(protection=protection))


if __name__ == "__main__":
  command_line.run(main)
