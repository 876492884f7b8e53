"""BLT: noise whose correlation decays exponentially, in a few buffers.

Dvijotham et al. 2024, "Efficient and Near-Optimal Noise Generation for
Streaming Differential Privacy" (buffered linear Toeplitz matrices); McMahan,
Xu and Zhang 2024, "A Hassle-free Algorithm for Private Learning in Practice:
Don't Use Tree Aggregation, Use BLTs".
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses

from etils import epy

from tff_fedemb import config
from tff_fedemb.mechanisms import blt_strategy
from tff_fedemb.mechanisms import mechanism
from tff_fedemb.mechanisms import strategy as strategy_lib
from tff_fedemb.participation import participation

with epy.lazy_imports():
  import tensorflow as tf


@dataclasses.dataclass(frozen=True, kw_only=True)
class BltConfig(mechanism.CorrelatedConfig):
  """The BLT mechanism, its matrix optimised for the run.

  Each update is clipped to L2 norm C = `clip_norm`, the clipped updates are
  summed, and the round's row of S^-1 Z is added. The rows of Z are independent
  N(0, (z C)^2) with z = `noise_multiplier`. S is the BLT matrix that makes the
  least noise in the models of the run's server optimizer
  (`mechanisms.strategy.Workload`) at equal privacy. The result is divided by
  the *expected* number of virtual clients. The state holds `num_buffers` copies
  of the model; making a round's noise takes one more.

  Privacy:
    Unit: one virtual client's update.
    Neighbouring relation: zero-out of one update.
    Sensitivity: C in a round, and over a run that of S for the separation and
      the number of participations that the ledger accounts for. With several
      users in a virtual client, one *user* changes one clipped update into
      another, which is 2 C in a round. The participation says which of the two
      holds.
    DpEvent: `GaussianDpEvent(noise_multiplier / s)` for the whole run, s being
      the sensitivity of the `BltStrategy`. Secret bins alone amplify it.
      `NonPrivateDpEvent` at noise multiplier 0.

  Attributes:
    num_buffers: Model copies that the noise is made from, 1 to 4.
    objective: Noise in the models that is made small: rmse is the root mean
      square over the rounds, max_error the largest.

  Examples:
    >>> mechanism = fe.Blt(noise_multiplier=4.0, num_buffers=2)
    >>> users = fe.MinSeparation(users_per_round=1_000)
    >>> cost = fe.epsilon(mechanism, users, num_users=10_000, rounds=20)
    >>> round(cost, 2)
    1.71
  """

  strategy_class = blt_strategy.BltStrategy
  noise_in_words = "BLT"
  is_compared = True
  follows_workload = True
  size_field = "num_buffers"

  num_buffers: int = config.field(2, minimum=1)
  objective: str = config.field(
    "rmse", choices=("rmse", "max_error"), flag="blt_objective"
  )

  @staticmethod
  def next_noise(
    strategy: blt_strategy.BltStrategy, buffers: tf.Tensor, fresh: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """As `correlated_query.NextNoise`: noise_t = z_t - sum_j weight_j buffer_j.

    There are as many buffers as decays. Each remembers all earlier noise, the
    noise of i rounds ago with weight decay_j^(i - 1).

    Args:
      strategy: The matrix, with its weights and decays.
      buffers: `[num_buffers, n]`, float64.
      fresh: z_t, `[n]`, float64.

    Returns:
      The noise of the round, `[n]`, and the buffers of the next one.
    """
    weights = tf.constant(strategy.weights, fresh.dtype)
    noise = fresh - tf.tensordot(weights, buffers, 1)
    decays = tf.constant(strategy.decays, fresh.dtype)
    return noise, decays[:, tf.newaxis] * buffers + noise

  @classmethod
  def sizes_to_try(
    cls, claim: participation.Participation
  ) -> Sequence[int | None]:
    """Numbers of buffers to try, ascending.

    Where users are drawn once, only 2 is tried: Monte Carlo takes at least ten
    seconds for each size.

    Args:
      claim: Who takes part.

    Returns:
      2, 3 and 4, or 2 alone.
    """
    if claim.is_drawn_once:
      return (2,)
    return (2, 3, 4)

  def create_strategy(
    self,
    schedule: mechanism.Schedule,
    workload: strategy_lib.Workload = strategy_lib.PREFIX_SUMS,
  ) -> blt_strategy.BltStrategy:
    """Optimises the matrix for the schedule, the workload and the objective.

    The noise of a model never falls, so the last model has the largest:
    objective max_error is that of the last model alone.

    Args:
      schedule: The rounds of the run, and which of them a user may be in.
      workload: How the run makes its models of the rounds' sums.

    Returns:
      The matrix of `num_buffers` buffers.

    Raises:
      errors.FieldError: If there are more than 4 buffers.
    """
    if self.objective == "max_error":
      workload = dataclasses.replace(workload, noise_objective="last")
    return blt_strategy.optimize_blt(
      schedule, workload, num_buffers=self.num_buffers
    )
