"""Tree aggregation (DP-FTRL) with a fixed clip norm.

Kairouz et al. 2021, "Practical and Private (Deep) Learning without Sampling or
Shuffling", section 3 and appendix D; Honaker 2015, "Efficient Use of
Differentially Private Binary Trees", for the efficient estimate.
"""

import tensorflow as tf
import tensorflow_privacy as tfp

from tff_fedemb.aggregators import correlated
from tff_fedemb.aggregators import deferred
from tff_fedemb.aggregators import mechanism
from tff_fedemb.aggregators import secret_noise
from tff_fedemb.strategies import tree


def create_tree(config: mechanism.AggregatorConfig) -> mechanism.Mechanism:
  """Creates the mechanism of tree aggregation.

  Each update is clipped to L2 norm C = `clip_norm` and the clipped updates are
  summed. The rounds are the leaves of a binary tree whose nodes each have
  noise N(0, (z C)^2); to the prefix sum of the rounds the efficient estimate of
  its nodes' noise is added, and a round gets the difference of two such. The
  result is divided by the *expected* number of virtual clients. A tree is
  completed and a new one begun every `restart_every` rounds, or never. The
  state holds at most ceil(log2 rounds) + 1 copies of the model (of three rounds
  or more).

  Privacy:
    Unit: one virtual client's update.
    Neighbouring relation: zero-out of one update.
    Sensitivity: C in every node above a round that a user is in; over a run
      the worst case over the rounds that they may be in
      (`strategies.tree.TreeStrategy`). With several users in a virtual client
      one *user* changes one clipped update into another, which is 2 C in a
      round: the participation says which.
    DpEvent: `CorrelatedGaussianDpEvent(noise_multiplier, TreeStrategy)`, no
      amplification; `NonPrivateDpEvent` at noise multiplier 0.

  Args:
    config: Also rounds and restart_every.

  Returns:
    The mechanism.
  """

  def clip(tensors, clip_norm):
    return tf.clip_by_global_norm(tensors, clip_norm)[0]

  def build_query(specs):
    query = tfp.TreeResidualSumQuery(
      record_specs=specs,
      noise_generator=secret_noise.SecretNoiseGenerator(
        config.clip_norm * config.noise_multiplier,
        specs,
        seed=config.noise_seed,
      ),
      clip_fn=clip,
      clip_value=config.clip_norm,
      use_efficient=True,
    )
    if config.restart_every is None:
      return query
    return tfp.RestartQuery(
      query,
      tfp.restart_query.PeriodicRoundRestartIndicator(config.restart_every),
    )

  return correlated.measure_correlated(
    deferred.DeferredQueryFactory(
      build_query, clients_per_round=config.clients_per_round
    ),
    config,
    tree.TreeStrategy(config.restart_every),
  )
