"""Tree aggregation (DP-FTRL) with a fixed clip norm.

Kairouz et al. 2021, "Practical and Private (Deep) Learning without Sampling or
Shuffling", section 3 and appendix D; Honaker 2015, "Efficient Use of
Differentially Private Binary Trees", for the efficient estimate.
"""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_fedemb import config
from tff_fedemb.mechanisms import mechanism
from tff_fedemb.mechanisms import strategy as strategy_lib
from tff_fedemb.mechanisms import tree_strategy

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_privacy as tfp

  from tff_fedemb.mechanisms import correlated_query


@dataclasses.dataclass(frozen=True, kw_only=True)
class TreeConfig(mechanism.CorrelatedConfig):
  """The mechanism of tree aggregation.

  Each update is clipped to L2 norm C = `clip_norm`, and the clipped updates are
  summed. The rounds are the leaves of a binary tree. Each of its nodes has
  noise N(0, (z C)^2) with z = `noise_multiplier`. The noise of a prefix sum is
  that of the efficient estimates of the nodes that make it up; a round gets the
  difference between its prefix sum's noise and that of the prefix sum before.
  The result is divided by the *expected* number of virtual clients. A tree ends
  and a new one starts every `restart_every` rounds, or never. The state holds
  at most floor(log2 rounds) + 1 copies of the model, and a round draws one
  array of the model's size (`correlated_query.complete_node`).

  Privacy:
    Unit: one virtual client's update.
    Neighbouring relation: zero-out of one update.
    Sensitivity: C in every node above a round that a user is in, and over a run
      that of the worst rounds that they may be in
      (`mechanisms.tree_strategy.TreeStrategy`). With several users in a virtual
      client, one *user* changes one clipped update into another, which is 2 C
      in a round. The participation says which of the two holds.
    DpEvent: `GaussianDpEvent(noise_multiplier / s)` for the whole run, s being
      the sensitivity of the `TreeStrategy`. No amplification.
      `NonPrivateDpEvent` at noise multiplier 0.

  Attributes:
    restart_every: Rounds of a tree [a single tree].

  Examples:
    >>> mechanism = fe.Tree(noise_multiplier=4.0)
    >>> users = fe.MinSeparation(users_per_round=1_000)
    >>> cost = fe.epsilon(mechanism, users, num_users=10_000, rounds=20)
    >>> round(cost, 2)
    3.42
  """

  strategy_class = tree_strategy.TreeStrategy
  is_compared = True

  restart_every: int | None = config.field(None, minimum=1)

  def create_strategy(
    self,
    schedule: mechanism.Schedule,
    workload: strategy_lib.Workload = strategy_lib.PREFIX_SUMS,
  ) -> tree_strategy.TreeStrategy:
    """Returns the matrix of trees of `restart_every` rounds.

    It depends neither on the schedule nor on the workload.
    """
    return tree_strategy.TreeStrategy(self.restart_every)

  def build_query(self, specs, made):
    """Builds the query of a tree, or of one tree after another.

    Args:
      specs: Shapes of an update, nested.
      made: The mechanism of the run.

    Returns:
      `build_tree`; with `restart_every`, within a query that restarts it.
    """
    query = self.build_tree(specs, made)
    if self.restart_every is None:
      return query
    indicator = tfp.restart_query.PeriodicRoundRestartIndicator(
      self.restart_every
    )
    return tfp.RestartQuery(query, indicator)

  def build_tree(
    self, specs: tuple[tf.TensorSpec, ...], made: mechanism.Mechanism
  ) -> tfp.DPQuery:
    """Builds the query of a single tree.

    Args:
      specs: Shapes of an update, nested.
      made: The mechanism of the run; the configuration has the noise of its
        sum.

    Returns:
      A query whose state has the tree.
    """
    del made  # The configuration has the noise of the sum.
    return correlated_query.TreeSumQuery(
      specs,
      clip_norm=self.clip_norm,
      stddev=self.clip_norm * self.noise_multiplier,
      noise_seed=self.noise_seed,
    )
