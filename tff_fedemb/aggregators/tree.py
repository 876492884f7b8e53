"""Tree aggregation (DP-FTRL) with a fixed clip norm.

Kairouz et al. 2021, "Practical and Private (Deep) Learning without Sampling or
Shuffling", section 3 and appendix D; Honaker 2015, "Efficient Use of
Differentially Private Binary Trees", for the efficient estimate.
"""

import dataclasses
from typing import Any

import tensorflow as tf
import tensorflow_privacy as tfp

from tff_fedemb import config
from tff_fedemb.aggregators import correlated
from tff_fedemb.aggregators import mechanism
from tff_fedemb.aggregators import secret_noise
from tff_fedemb.strategies import tree


class _GridTreeQuery(tfp.TreeResidualSumQuery):
  """tensorflow-privacy's query, sum and noise on a common grid."""

  def get_noised_result(self, sample_state, global_state):
    """Adds the noise of the round to the sum of its records."""
    noise, new_state, event = super().get_noised_result(
      tf.nest.map_structure(lambda _: tf.zeros([]), sample_state), global_state
    )
    noised = secret_noise.add_on_grid(
      sample_state, noise, global_state.clip_value
    )
    return noised, new_state, event


def build_tree_query(
  specs: Any, *, clip_norm: float, stddev: float, noise_seed: int | None
) -> tfp.TreeResidualSumQuery:
  """Builds the query of a single tree, its noise from a secret seed.

  Args:
    specs: Shapes of a record, nested.
    clip_norm: L2 norm to which a record is clipped.
    stddev: Of the noise of a node.
    noise_seed: For tests, see `secret_noise`.
  """
  query_class = _GridTreeQuery if stddev else tfp.TreeResidualSumQuery
  return query_class(
    record_specs=specs,
    noise_generator=secret_noise.SecretNoiseGenerator(
      stddev, specs, seed=noise_seed
    ),
    clip_fn=lambda tensors, norm: tf.clip_by_global_norm(tensors, norm)[0],
    clip_value=clip_norm,
    use_efficient=True,
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TreeConfig(correlated.CorrelatedConfig):
  """The mechanism of tree aggregation.

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

  Attributes:
    restart_every: Rounds of a tree [a single tree].
  """

  restart_every: int | None = config.field(None, minimum=1)

  def create(
    self, schedule: mechanism.Schedule = mechanism.ONE_ROUND
  ) -> mechanism.Mechanism:
    """Creates the mechanism; as in the base class."""

    def build_query(specs):
      query = build_tree_query(
        specs,
        clip_norm=self.clip_norm,
        stddev=self.clip_norm * self.noise_multiplier,
        noise_seed=self.noise_seed,
      )
      if self.restart_every is None:
        return query
      return tfp.RestartQuery(
        query,
        tfp.restart_query.PeriodicRoundRestartIndicator(self.restart_every),
      )

    return self.measure_query(
      build_query, schedule, tree.TreeStrategy(self.restart_every)
    )
