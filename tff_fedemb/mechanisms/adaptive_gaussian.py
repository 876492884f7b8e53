"""Gaussian mechanism whose clip norm follows a quantile of the updates' norms.

Andrew et al. 2021, "Differentially Private Learning with Adaptive Clipping".
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
from typing import Any

from etils import epy

from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.mechanisms import mechanism

with epy.lazy_imports():
  import tensorflow_privacy as tfp

  from tff_fedemb.mechanisms import secret_noise

_COUNT_STDDEV_PER_CLIENT = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaptiveClippingConfig(mechanism.MechanismConfig):
  """Fields of mechanisms whose clip norm follows a quantile.

  Attributes:
    target_unclipped_quantile: Share of updates that adaptive clipping aims to
      leave unclipped.
    clip_learning_rate: Learning rate of the logarithm of an adaptive clip norm.
  """

  target_unclipped_quantile: float = config.field(
    0.5, above=0, below=1, searchable=True
  )
  clip_learning_rate: float = config.field(0.2, above=0, searchable=True)

  def check_clients(self, clients_per_round: float) -> None:
    """Refuses a noise multiplier of a tenth of the clients or more.

    The count of unclipped updates has noise of a twentieth of the clients, and
    changes by 1/2 where the sum changes by its clip norm. The noise multiplier
    of both together is therefore below a tenth of the clients.

    Args:
      clients_per_round: Expected number of virtual clients in a round.

    Raises:
      errors.FieldError: If it is not positive, or at most ten times the noise
        multiplier.
    """
    super().check_clients(clients_per_round)
    largest = self.noise_multiplier_of_count(clients_per_round)
    if self.noise_multiplier and self.noise_multiplier >= largest:
      raise errors.FieldError(
        "noise_multiplier",
        f"be less than a tenth of clients_per_round, {largest:g}, with adaptive"
        " clipping",
        f"{self.noise_multiplier:g}",
      )

  def count_stddev(self, clients_per_round: float) -> float:
    """Standard deviation s of the noise on the count of unclipped updates.

    s = 0.05 x `clients_per_round` (Andrew et al. 2021, section 2.3); 0 without
    noise.

    Args:
      clients_per_round: Expected number of virtual clients in a round.

    Returns:
      s, in counts of 1 for an update.
    """
    if not self.noise_multiplier:
      return 0.0
    return _COUNT_STDDEV_PER_CLIENT * clients_per_round

  def noise_multiplier_of_sum(self, clients_per_round: float) -> float:
    """The part of the noise multiplier z that the sum of updates gets.

    This is z_sum with z^-2 = z_sum^-2 + (2 s)^-2, because the count changes by
    1/2 where the sum changes by its clip norm. 0 without noise.

    Args:
      clients_per_round: Expected number of virtual clients in a round, as
        `check_clients` allows it.

    Returns:
      z_sum, above z: the sum has more noise than it would have without a count.
    """
    if not self.noise_multiplier:
      return 0.0
    of_count = self.noise_multiplier_of_count(clients_per_round)
    precision = self.noise_multiplier**-2 - of_count**-2
    return precision**-0.5

  def noise_multiplier_of_count(self, clients_per_round: float) -> float:
    """The count's part, 2 s: a client changes the centred count by 1/2.

    Args:
      clients_per_round: Expected number of virtual clients in a round.
    """
    return 2.0 * self.count_stddev(clients_per_round)

  def build_adaptive_query(
    self,
    made: mechanism.Mechanism,
    query_class: Callable[..., tfp.DPQuery],
    *specs: Any,
    build_sum: Callable[[float, float, bool], tfp.DPQuery],
  ) -> tfp.DPQuery:
    """Builds a query of tensorflow-privacy, with secret noise.

    The library offers no way to change the source of the noise. So both inner
    queries are replaced by queries that do the same with secret noise.

    Args:
      made: The mechanism of the run.
      query_class: The library's class.
      *specs: Further arguments of this class, after the noise multiplier.
      build_sum: Builds a query that clips, sums and adds noise. It gets the
        clip norm, the standard deviation, and whether the records are counts.

    Returns:
      A query of `query_class`, whose clip norm follows the quantile by
      multiplication (Andrew et al. 2021, geometric update).
    """
    noise_multiplier = self.noise_multiplier_of_sum(made.clients_per_round)
    count_stddev = self.count_stddev(made.clients_per_round)
    query = query_class(
      self.clip_norm,
      noise_multiplier,
      *specs,
      self.target_unclipped_quantile,
      self.clip_learning_rate,
      count_stddev,
      made.clients_per_round,
      geometric_update=True,
    )
    query._sum_query = build_sum(
      self.clip_norm, self.clip_norm * noise_multiplier, False
    )
    # Each update counts for +-1/2, which bounds its norm.
    count_query = build_sum(0.5, count_stddev, True)
    query._quantile_estimator_query._below_estimate_query = tfp.NormalizedQuery(
      count_query, denominator=made.clients_per_round
    )
    return query


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaptiveGaussianConfig(AdaptiveClippingConfig):
  """The Gaussian mechanism with adaptive clipping.

  `clip_norm` is the clip norm C of the first round. After each round C is
  multiplied by exp(-`clip_learning_rate` x (b - `target_unclipped_quantile`)).
  Here b is the share of updates that were not clipped; their count has noise of
  standard deviation s = 0.05 x `clients_per_round`.

  Privacy:
    Unit: one virtual client's update.
    Neighbouring relation: zero-out of one update, by which the sum changes by
      at most C and the count, of +-1/2 for each update, by 1/2.
    Sensitivity: C and 1/2 together, one unit of the pair. With several users
      in a virtual client, or with fixed-size sampling, one *user* changes one
      clipped update into another: 2 C and 1, two units. The participation says
      which of the two holds, and the accountant divides the noise multiplier by
      it.
    DpEvent: `GaussianDpEvent(z)` per round for both releases together, z =
      `noise_multiplier`. The sum gets the larger multiplier z_sum, for which
      z^-2 = z_sum^-2 + (2 s)^-2 (section 2.3 of the paper).
      `NonPrivateDpEvent` at noise multiplier 0.

  Examples:
    >>> mechanism = fe.AdaptiveGaussian(noise_multiplier=1.0, clip_norm=0.1)
    >>> factory = fe.build_aggregator(mechanism, clients_per_round=50)
  """

  next_clip_norm_fn = staticmethod(
    lambda inner: inner["dp_query_metrics"]["clip"]
  )

  def build_query(self, specs, made):
    """As in the base class: independent noise on the sum and on the count.

    Args:
      specs: Shapes of an update, nested.
      made: The mechanism, whose clients per round scale the noise on the count.

    Returns:
      tensorflow-privacy's query of a clip norm that follows a quantile.
    """

    def build_sum(clip_norm: float, stddev: float, is_of_counts: bool):
      del is_of_counts  # Sums and counts have the same kind of query.
      return secret_noise.SecretGaussianSumQuery(clip_norm, stddev)

    return self.build_adaptive_query(
      made, tfp.QuantileAdaptiveClipSumQuery, build_sum=build_sum
    )
