r"""Plans a deployment: cohort, over-selection and deadline for a population.

  python -m binaries.plan_deployment --deployment=phones --num_users=1000000 \
    --rounds=1000 --noise_on_mean=0.004 --clients_per_round=250,500,1000 \
    --days=7 --output_png=plans.png

Every plan is simulated with its devices and accounted for as participation
check_ins is. All have the same noise on the mean (noise_on_mean is what
--noise_multiplier / --clients_per_round was in a simulation that learned), so
that the noise multiplier grows with the cohort: more reports cost less epsilon
and take longer. --days seeks the smallest epsilon in so many simulated days,
--target_epsilon the fewest days.
"""

from experiments import command_line
from experiments import config_flags
from experiments import deployment_plans

_CONFIG = config_flags.ConfigFlags(deployment_plans.PlansConfig)


def main() -> None:
  """Tries the plans that the flags describe."""
  deployment_plans.execute(_CONFIG.create())


if __name__ == "__main__":
  command_line.run(main)
