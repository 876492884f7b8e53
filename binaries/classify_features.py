r"""Fits a private linear classifier on files of features, and tests it.

  python -m binaries.classify_features --train=train.npz --test=test.npz \
    --method=feature_covariance --epsilon=2 --delta=1e-6 \
    --output_json=result.json

Files are .npz with features and labels of examples. One example is protected,
or with --unit=user all examples of a user; the file gets the accuracy, and what
each release cost.
"""

from collections.abc import Sequence

from binaries import command_line
from tff_fedemb.features import runs
from tff_fedemb.features import settings


def main(argv: Sequence[str]) -> None:
  """Runs the fits that the flags describe."""
  command_line.execute(
    argv,
    __doc__,
    runs.ClassificationConfig,
    runs.execute,
    details={"hyperparameters": settings.describe_methods()},
  )


if __name__ == "__main__":
  command_line.run(main)
