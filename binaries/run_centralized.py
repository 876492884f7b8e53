r"""Trains an embedding model on pooled data, without privacy: the baseline.

  python -m binaries.run_centralized --task=emnist --data_dir=data \
    --run_dir=runs/centralized

A round is a pass over the pooled data of --users_per_round users. With
--export_backbone it pretrains: on public data, for private training to start
from; with --objective=contrastive no labels are looked at.
"""

from collections.abc import Sequence

from binaries import command_line
from binaries import config_flags
from binaries import smoke
from binaries import training_flags
from tff_fedemb import registry
from tff_fedemb.algorithms import algorithm
from tff_fedemb.algorithms import centralized
from tff_fedemb.algorithms import contrastive

OBJECTIVES: registry.Registry[algorithm.Algorithm] = registry.Registry(
  algorithm.Algorithm,
  {
    "classification": centralized.Centralized,
    "contrastive": contrastive.Contrastive,
  },
  kind="objective",
)


def main(argv: Sequence[str]) -> None:
  """Plans or trains the run that the flags describe."""
  with config_flags.Parser(argv, __doc__, expand=smoke.expand) as parser:
    options = parser.add(training_flags.RunOptions)
    spec = training_flags.SpecFlags(parser, OBJECTIVES)
    parser.parse()
    training_flags.execute(options.create(), spec)


if __name__ == "__main__":
  command_line.run(main)
