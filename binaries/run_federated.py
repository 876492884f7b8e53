r"""Trains an embedding model on users' data with user-level privacy.

For instance, on handwriting that was made up:

  python -m tasks.synthetic --task=emnist --output_dir=data --num_users=200
  python -m binaries.run_federated --task=emnist --data_dir=data \
    --algorithm=fedemb --aggregator=gaussian --noise_multiplier=0.3 \
    --run_dir=runs/first

The run directory gets summary.json (recall, epsilon and what it means),
release/ (what may be given away), plots/, metrics.csv, tensorboard/ and
checkpoints/. The same command resumes a run that was ended.
"""

from collections.abc import Sequence

from binaries import command_line
from binaries import config_flags
from binaries import smoke
from binaries import training_flags


def main(argv: Sequence[str]) -> None:
  """Plans or trains the run that the flags describe."""
  with config_flags.Parser(argv, __doc__, expand=smoke.expand) as parser:
    # Private training exports its release/ alone.
    options = parser.add(training_flags.RunOptions, skip=("export_backbone",))
    spec = training_flags.SpecFlags(parser)
    parser.parse()
    training_flags.execute(options.create(), spec)


if __name__ == "__main__":
  command_line.run(main)
