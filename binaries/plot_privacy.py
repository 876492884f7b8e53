r"""Draws what privacy costs: against users, against rounds, against utility.

  python -m binaries.plot_privacy --output_dir=pictures
  python -m binaries.plot_privacy --output_dir=pictures --runs='runs/mech_*' \
    --num_users=1000000 --cohort_factors=250,500,1000

epsilon_by_users.png and epsilon_by_rounds.png come from accounting alone; they
have a curve for each noise multiplier. utility_by_epsilon.png, with --runs, has
the recall that finished runs measured against the epsilon of --num_users users
where cohort and noise are cohort_factor times the runs' (Xu et al. 2023,
figures 3 and 4): an extrapolation, and drawn as one. measured_by_users.png,
with --runs, has what these runs themselves cost among the users that they had.
"""

from collections.abc import Sequence

from binaries import command_line
from binaries import config_flags
from tff_fedemb.mechanisms import registry as aggregators
from tff_fedemb.participation import registry as participations
from tff_fedemb.report import privacy_pictures


def main(argv: Sequence[str]) -> None:
  """Draws the pictures that the flags ask for, and says where they are."""
  with config_flags.Parser(argv, __doc__) as parser:
    config = parser.add(privacy_pictures.PictureConfig)
    mechanism = parser.add_choice(
      "mechanism", aggregators.AGGREGATORS, skip=config_flags.PLANNED
    )
    participation = parser.add_choice(
      "participation", participations.PARTICIPATIONS, skip=config_flags.PLANNED
    )
    parser.parse()
    found = privacy_pictures.draw(
      config.create(
        mechanism_options=parser.given(mechanism),
        options=parser.given(participation),
      )
    )
    print(*found, sep="\n")


if __name__ == "__main__":
  command_line.run(main)
