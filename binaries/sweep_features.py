r"""Compares private classifiers on features over a range of epsilons.

  python -m binaries.sweep_features --train=train.npz --test=test.npz \
    --methods=sgd,least_squares,least_squares:covariance=per_class \
    --delta=1e-6 --output_json=sweep.json --output_png=sweep.png

Every method is fitted at every epsilon several times; means and deviations are
over these fits.
"""

from collections.abc import Sequence

from binaries import command_line
from tff_fedemb.features import settings
from tff_fedemb.features import sweeps


def main(argv: Sequence[str]) -> None:
  """Runs the fits that the flags describe."""
  command_line.execute(
    argv,
    __doc__,
    sweeps.SweepConfig,
    sweeps.execute,
    skip=("seed",),
    details={"methods": settings.describe_methods()},
  )


if __name__ == "__main__":
  command_line.run(main)
