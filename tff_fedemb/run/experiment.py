"""What a training program decides before it opens the run directory."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses

from etils import epy

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.aggregators import mechanism as mechanism_lib
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import epsilon as epsilon_lib
from tff_fedemb.privacy import extrapolation as extrapolation_lib
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.privacy import planning
from tff_fedemb.run import deployment as deployment_run

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_fedemb.privacy import arithmetic
  from tff_fedemb.run import task as task_lib
  from tff_fedemb.runtime import secure_sums


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
  """What is trained on whose data, and what that costs.

  Attributes:
    name: Name of the algorithm.
    task: Data and classes.
    create_backbone: Makes a fresh backbone.
    build_process: Builds the learning process; slow, hence deferred.
    participation: Draws the virtual clients of a round.
    mechanism: Aggregator and what it costs.
    delta: At which epsilon is stated.
    extrapolation: For whom else to work out the cost.
    deployed: Whose devices come and go, or `None`: then the participation draws
      who takes part.
    export_backbone: Where to write the backbone beside the run's own
      SavedModel, or `None`.
  """

  name: str
  task: task_lib.Task
  create_backbone: Callable[[], tf.keras.Model]
  build_process: Callable[[], tff.learning.templates.LearningProcess]
  participation: participation_lib.Participation
  mechanism: mechanism_lib.Mechanism
  delta: float
  extrapolation: ExtrapolationConfig = ExtrapolationConfig()
  deployed: deployment_run.Deployed | None = None
  export_backbone: str | None = None

  @property
  def secure_sums(self) -> str | None:
    """How secure the sums of updates are; None if they are in the clear."""
    return (
      secure_sums.SIMULATED if self.mechanism.config.sums_securely else None
    )

  def create_ledger(
    self, num_parameters: int | None = None
  ) -> ledger_lib.Ledger:
    """Creates the empty ledger of a run.

    Args:
      num_parameters: Numbers of an update; None if that does not matter.

    Raises:
      errors.FieldError: If the mechanism cannot be accounted for.
    """
    composition.check_noise(
      [(self.mechanism.round_event, 1)], self.participation
    )
    config, round_sum = self.mechanism.config, None
    if num_parameters is not None and config.clips:
      round_sum = arithmetic.RoundSum(
        config.clip_norm, config.noise_multiplier_of_sum, num_parameters
      )
    return ledger_lib.Ledger(
      self.participation,
      delta=self.delta,
      accountants=epsilon_lib.accountants_of_run(
        self.participation, config.noise_multiplier
      ),
      round_sum=round_sum,
    )

  def extrapolate(
    self, rounds: int, *, accountants: tuple[str, ...] | None = None
  ) -> extrapolation_lib.Extrapolation | None:
    """As `ExtrapolationConfig.extrapolate`, of this experiment."""
    return self.extrapolation.extrapolate(
      rounds,
      noise=composition.noise_of(self.mechanism.round_event),
      participation=self.participation,
      accountants=accountants,
    )
