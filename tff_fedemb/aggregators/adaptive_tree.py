"""Tree aggregation whose clip norm is taken anew with every tree.

Kairouz et al. 2021, "Practical and Private (Deep) Learning without Sampling or
Shuffling"; Andrew et al. 2021, "Differentially Private Learning with Adaptive
Clipping".
"""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.aggregators import adaptive_clipping
from tff_fedemb.aggregators import correlated
from tff_fedemb.aggregators import mechanism
from tff_fedemb.strategies import tree

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_privacy as tfp

  from tff_fedemb.aggregators import tree_query


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaptiveTreeConfig(
  correlated.CorrelatedConfig, adaptive_clipping.AdaptiveClippingConfig
):
  """Tree aggregation with adaptive clipping.

  As `tree.TreeConfig`, in trees of `restart_every` rounds. `clip_norm` is the
  clip norm C of the first; a quantile of the updates' norms is followed as in
  `adaptive_clipping`, with a tree of its own for the noise of the counts, and
  what it has come to when a tree is complete is the clip norm of the next. The
  first tree may be a shorter one, of `restart_warmup` rounds.

  Privacy:
    Unit: one virtual client's update.
    Neighbouring relation: zero-out of one update, by which the sum changes by
      at most C and the count, of +-1/2 for each update, by 1/2.
    Sensitivity: C and 1/2 together, one unit of the pair, in every node above
      a round that a user is in; 2 C and 1, two units, for one *user* among
      several in a virtual client. C is constant in each tree.
    DpEvent: `CorrelatedGaussianDpEvent(z, TreeStrategy)` for both trees
      together, z = `noise_multiplier` split between them as in
      `adaptive_clipping`; no amplification; `NonPrivateDpEvent` at noise
      multiplier 0.

  Attributes:
    restart_every: Rounds of a tree [a single tree].
    restart_warmup: Rounds of the first tree
      [restart_every].
  """

  next_clip_norm_fn = staticmethod(
    lambda inner: inner["dp_query_metrics"]["current_clip"]
  )
  strategy_class = tree.TreeStrategy

  restart_every: int | None = config_lib.field(None, minimum=1)
  restart_warmup: int | None = config_lib.field(None, minimum=1)

  def __post_init__(self):
    super().__post_init__()
    if self.restart_every is None:
      raise errors.FieldError(
        "restart_every",
        "be given with aggregator adaptive_tree, which takes its clip norm anew"
        " with every tree",
        None,
      )

  def create_strategy(self, schedule: mechanism.Schedule) -> tree.TreeStrategy:
    return tree.TreeStrategy(self.restart_every, self.restart_warmup)

  def build_query(
    self,
    specs: tuple[tf.TensorSpec, ...],
    strategy: tree.TreeStrategy,
  ) -> tfp.DPQuery:
    return tfp.RestartQuery(
      self._build_query(specs),
      tfp.restart_query.PeriodicRoundRestartIndicator(
        self.restart_every, self.restart_warmup
      ),
    )

  def _build_query(
    self, specs: tuple[tf.TensorSpec, ...]
  ) -> tfp.QAdaClipTreeResSumQuery:
    """Builds tensorflow-privacy's query with noise from a secret seed.

    The library seeds the tree of the updates and that of the count from the
    time of day and offers no way to change the latter's, so both inner queries
    are replaced by the same ones with another generator.
    """
    query = tfp.QAdaClipTreeResSumQuery(
      self.clip_norm,
      self.noise_multiplier_of_sum,
      specs,
      self.target_unclipped_quantile,
      self.clip_learning_rate,
      self.count_stddev,
      self.clients_per_round,
      geometric_update=True,
    )
    query._sum_query = tree_query.TreeSumQuery(
      specs,
      clip_norm=self.clip_norm,
      stddev=self.clip_norm * self.noise_multiplier_of_sum,
      noise_seed=self.noise_seed,
    )
    query._quantile_estimator_query._below_estimate_query = tfp.NormalizedQuery(
      tree_query.TreeSumQuery(
        tf.TensorSpec([]),
        # Each update counts for +-1/2, which bounds its norm.
        clip_norm=0.5,
        stddev=self.count_stddev,
        # Beyond what the sum's tree will ever count up to.
        noise_seed=None if self.noise_seed is None else self.noise_seed + 2**40,
      ),
      denominator=self.clients_per_round,
    )
    return query
