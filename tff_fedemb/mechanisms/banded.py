"""Banded Toeplitz matrix factorisation.

Choquette-Choo et al. 2023, "(Amplified) Banded Matrix Factorization: A unified
approach to private training"; Kalinin and Lampert 2024, "Banded Square Root
Matrix Factorization for Differentially Private Model Training".
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses

from etils import epy

from tff_fedemb import config
from tff_fedemb.mechanisms import banded_strategy
from tff_fedemb.mechanisms import mechanism
from tff_fedemb.mechanisms import strategy as strategy_lib
from tff_fedemb.participation import participation

with epy.lazy_imports():
  import tensorflow as tf

# Numbers of bands to try. The errors of neighbours differ by less than 2%, and
# more bands would take the memory of hundreds of models.
_MANY = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
# Without sampling, more bands are always better but need more memory.
_UNSAMPLED = (4, 16, 64, 256)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BandedConfig(mechanism.CorrelatedConfig):
  """The banded mechanism, its matrix optimised for the run.

  Each update is clipped to L2 norm C = `clip_norm`, the clipped updates are
  summed, and the round's row of S^-1 Z is added. The rows of Z are independent
  N(0, (z C)^2) with z = `noise_multiplier`. S is the Toeplitz matrix of
  `num_bands` bands (by default `min_separation`) that makes the least noise in
  the models of the run's server optimizer (`mechanisms.strategy.Workload`) at
  equal privacy. The result is divided by the *expected* number of virtual
  clients. The state holds a copy of the model for every band but one: for large
  models see `blt`.

  Privacy:
    Unit: one virtual client's update.
    Neighbouring relation: zero-out of one update.
    Sensitivity: C in a round, and over a run that of S. The columns of S do not
      overlap where a user takes part no more often than every `num_bands`
      rounds; then it is sqrt(participations) times the norm of one column. With
      several users in a virtual client, one *user* changes one clipped update
      into another, which is 2 C in a round. The participation says which of the
      two holds.
    DpEvent: `GaussianDpEvent(noise_multiplier / s)` for the whole run, s being
      the sensitivity of the `BandedToeplitzStrategy`. Cyclic Poisson sampling
      and random allocation with a period of at least `num_bands` amplify it,
      and so do secret bins: the participation says by which event.
      `NonPrivateDpEvent` at noise multiplier 0.

  Attributes:
    num_bands: Bands of a banded matrix [min_separation].

  Examples:
    >>> mechanism = fe.Banded(noise_multiplier=2.0, num_bands=4)
    >>> users = fe.CyclicPoisson(users_per_round=50, period=4)
    >>> cost = fe.epsilon(mechanism, users, num_users=10_000, rounds=20)
    >>> round(cost, 2)
    0.14
  """

  strategy_class = banded_strategy.BandedToeplitzStrategy
  is_compared = True
  follows_workload = True
  size_field = "num_bands"

  num_bands: int | None = config.field(None, minimum=1)

  @staticmethod
  def next_noise(
    strategy: banded_strategy.BandedToeplitzStrategy,
    buffers: tf.Tensor,
    fresh: tf.Tensor,
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """As `correlated_query.NextNoise`: noise_t = z_t - sum_i c_i noise_(t - i).

    There is one buffer fewer than there are bands: the noise of earlier rounds,
    the latest first.

    Args:
      strategy: The matrix, whose first column is c.
      buffers: `[num_bands - 1, n]`, float64.
      fresh: z_t, `[n]`, float64.

    Returns:
      The noise of the round, `[n]`, and the buffers of the next one.
    """
    below = strategy.coefficients[1:]
    if not below:
      return fresh, buffers
    coefficients = tf.constant(below, fresh.dtype)
    noise = fresh - tf.tensordot(coefficients, buffers, 1)
    return noise, tf.concat([noise[tf.newaxis], buffers[:-1]], axis=0)

  @classmethod
  def sizes_to_try(
    cls, claim: participation.Participation
  ) -> Sequence[int | None]:
    """Numbers of bands to try, ascending.

    They are many where sampling amplifies, as more bands then cancel more noise
    and amplify less. Without sampling more bands are better, and a few sizes
    show what their memory buys; where users are drawn once, the smallest is
    left out.

    Args:
      claim: Who takes part.

    Returns:
      Numbers between 2 and 256.
    """
    if claim.field_of_bands:
      return _MANY
    return _UNSAMPLED[1:] if claim.is_drawn_once else _UNSAMPLED

  def create_strategy(
    self,
    schedule: mechanism.Schedule,
    workload: strategy_lib.Workload = strategy_lib.PREFIX_SUMS,
  ) -> banded_strategy.BandedToeplitzStrategy:
    """Optimises the matrix for the schedule and the workload.

    Args:
      schedule: The rounds of the run, and which of them a user may be in.
      workload: How the run makes its models of the rounds' sums.

    Returns:
      The matrix of `num_bands` bands, by default of as many as fit between two
      rounds of a user.

    Raises:
      errors.FieldError: If there are more bands than rounds between two rounds
        of a user, or than rounds of the run.
    """
    return banded_strategy.optimize_banded(
      schedule, workload, num_bands=self.num_bands
    )
