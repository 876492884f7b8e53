"""For which larger population the cost of a run is worked out as well."""

import dataclasses

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import extrapolation as extrapolation_lib
from tff_fedemb.privacy import planning


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtrapolationConfig(config_lib.Config):
  """For whom the cost of the same noise on the mean is worked out.

  Attributes:
    extrapolated_num_users: Population for which the cost of the same noise on
      the mean is worked out beside the run's own; 0 for none.
    cohort_factor: Users of a round and noise multiplier of the extrapolation /
      of the run.
    extrapolated_delta: Delta of the extrapolation, at most 1 /
      extrapolated_num_users [extrapolated_num_users ** -1.1].
  """

  extrapolated_num_users: int = config_lib.field(10_000_000, minimum=0)
  cohort_factor: float = config_lib.field(
    64.0, above=0, flag="extrapolated_cohort_factor"
  )
  extrapolated_delta: float | None = config_lib.field(None, above=0, below=1)

  def __post_init__(self):
    super().__post_init__()
    num_users, delta = self.extrapolated_num_users, self.extrapolated_delta
    if num_users and delta is None:
      delta = planning.default_delta(num_users)
      object.__setattr__(self, "extrapolated_delta", delta)
    if num_users and delta > 1.0 / num_users:
      raise errors.FieldError(
        "extrapolated_delta",
        f"be at most 1 / extrapolated_num_users = {1.0 / num_users:g}",
        f"{delta:g}",
      )

  def extrapolate(
    self,
    rounds: int,
    *,
    noise: composition.Noise,
    participation: participation_lib.Participation,
    accountants: tuple[str, ...] | None = None,
  ) -> extrapolation_lib.Extrapolation | None:
    """Cost of the same noise on the mean with more users.

    Args:
      rounds: Number of rounds.
      noise: Of each of them.
      participation: Who takes part.
      accountants: As `extrapolation.extrapolate`.

    Returns:
      The extrapolation; `None` without noise, or if there is to be none.

    Raises:
      errors.FieldError: As `extrapolation.extrapolate`.
    """
    if not self.extrapolated_num_users or not noise.multiplier:
      return None
    return extrapolation_lib.extrapolate(
      rounds=rounds,
      noise_multiplier=noise.multiplier,
      participation=participation,
      strategy=noise.strategy,
      num_users=self.extrapolated_num_users,
      cohort_factor=self.cohort_factor,
      delta=self.extrapolated_delta,
      accountants=accountants,
    )
