r"""Compares private classifiers on features over a range of epsilons.

  python -m binaries.sweep_features --train=train.npz --test=test.npz \
    --methods=sgd,least_squares,least_squares:covariance=per_class \
    --delta=1e-6 --output_json=sweep.json --output_png=sweep.png

Every method is fitted at every epsilon several times. With several files in
--train and --test, each is tested on the one at the same place. An accuracy is
that of a fit, the mean over pairs of files; mean and deviation are over fits.
"""

from absl import flags

from binaries import command_line
from binaries import config_flags
from tff_fedemb.features import settings as feature_settings
from tff_fedemb.features import sweeps as feature_sweeps

_CONFIG = config_flags.ConfigFlags(
  feature_sweeps.SweepConfig,
  details={"methods": feature_settings.describe_methods()},
)
_UNIT = flags.DEFINE_string("unit", "example", feature_settings.UNIT_HELP)
_OF_UNIT = config_flags.ChoiceFlags(
  "unit", feature_settings.UNITS, skip=("seed",)
)


def main() -> None:
  """Runs the fits that the flags describe."""
  protection = _OF_UNIT.create(_UNIT.value)
  feature_sweeps.execute(_CONFIG.create(protection=protection))


if __name__ == "__main__":
  command_line.run(main)
