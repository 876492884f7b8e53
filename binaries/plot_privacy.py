r"""Draws what privacy costs: against users, against rounds, against utility.

  python -m binaries.plot_privacy --output_dir=pictures
  python -m binaries.plot_privacy --output_dir=pictures --runs='runs/mech_*' \
    --num_users=1000000 --cohort_factors=250,500,1000

epsilon_by_users.png and epsilon_by_rounds.png come from accounting alone; they
have a curve for each noise multiplier. utility_by_epsilon.png, with --runs, has
the recall that finished runs measured against the epsilon of --num_users users
where cohort and noise are cohort_factor times the runs' (Xu et al. 2023,
figures 3 and 4): an extrapolation, and drawn as one.
"""

from binaries import command_line
from binaries import config_flags
from tff_fedemb.aggregators import registry as aggregators
from tff_fedemb.participation import registry as participations
from tff_fedemb.report import privacy_pictures

_CONFIG = config_flags.ConfigFlags(privacy_pictures.PictureConfig)
_MECHANISM = config_flags.ChoiceFlags(
  "mechanism", aggregators.AGGREGATORS, skip=config_flags.PLANNED
)
_PARTICIPATION = config_flags.ChoiceFlags(
  "participation", participations.PARTICIPATIONS, skip=config_flags.PLANNED
)


def main() -> None:
  """Draws the pictures that the flags ask for, and says where they are."""
  config = _CONFIG.create(
    mechanism_options=_MECHANISM.given, options=_PARTICIPATION.given
  )
  for path in privacy_pictures.draw(config):
    print(path)


if __name__ == "__main__":
  command_line.run(main)
