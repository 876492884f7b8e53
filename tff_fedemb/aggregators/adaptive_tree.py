"""Tree aggregation whose clip norm is taken anew with every tree.

Kairouz et al. 2021, "Practical and Private (Deep) Learning without Sampling or
Shuffling"; Andrew et al. 2021, "Differentially Private Learning with Adaptive
Clipping".
"""

import tensorflow as tf
import tensorflow_privacy as tfp

from tff_fedemb.aggregators import adaptive_gaussian
from tff_fedemb.aggregators import correlated
from tff_fedemb.aggregators import deferred
from tff_fedemb.aggregators import mechanism
from tff_fedemb.aggregators import secret_noise
from tff_fedemb.strategies import tree


class _SecretAdaptiveTreeQuery(tfp.QAdaClipTreeResSumQuery):
  """tensorflow-privacy's query with noise from a secret seed.

  The library seeds the tree of the updates and that of the count from the time
  of day and offers no way to change the latter's, so both inner queries are
  replaced by the same ones with another generator.
  """

  def __init__(
    self,
    config: mechanism.AggregatorConfig,
    specs: tuple[tf.TensorSpec, ...],
    *,
    noise_multiplier_of_sum: float,
    count_stddev: float,
  ):
    super().__init__(
      config.clip_norm,
      noise_multiplier_of_sum,
      specs,
      *adaptive_gaussian.clipping_options(config),
      count_stddev,
      config.clients_per_round,
      geometric_update=True,
    )
    seed = config.noise_seed
    self._sum_query = _build_tree_query(
      specs,
      config.clip_norm,
      config.clip_norm * noise_multiplier_of_sum,
      seed,
    )
    # Each update counts for +-1/2, which bounds its norm.
    self._quantile_estimator_query._below_estimate_query = tfp.NormalizedQuery(
      _build_tree_query(
        tf.TensorSpec([]),
        0.5,
        count_stddev,
        # Beyond what the sum's tree will ever count up to.
        None if seed is None else seed + 2**40,
      ),
      denominator=config.clients_per_round,
    )


def _build_tree_query(specs, clip_norm, stddev, noise_seed):
  return tfp.TreeResidualSumQuery(
    record_specs=specs,
    noise_generator=secret_noise.SecretNoiseGenerator(
      stddev, specs, seed=noise_seed
    ),
    clip_fn=lambda tensors, norm: tf.clip_by_global_norm(tensors, norm)[0],
    clip_value=clip_norm,
    use_efficient=True,
  )


def create_adaptive_tree(
  config: mechanism.AggregatorConfig,
) -> mechanism.Mechanism:
  """Creates tree aggregation with adaptive clipping.

  As `tree.create_tree`, in trees of `restart_every` rounds. `clip_norm` is the
  clip norm C of the first; a quantile of the updates' norms is followed as in
  `adaptive_gaussian`, with a tree of its own for the noise of the counts, and
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
      `adaptive_gaussian`; no amplification; `NonPrivateDpEvent` at noise
      multiplier 0.

  Args:
    config: Also rounds, restart_every, restart_warmup,
      target_unclipped_quantile and clip_learning_rate.

  Returns:
    The mechanism.

  Raises:
    ValueError: If restart_every is not given, or as `adaptive_gaussian`.
  """
  if config.restart_every is None:
    raise ValueError(
      "restart_every must be given with aggregator adaptive_tree, which takes"
      " its clip norm anew with every tree, found None."
    )
  of_sum, count_stddev = adaptive_gaussian.split_noise(config)

  def build_query(specs):
    return tfp.RestartQuery(
      _SecretAdaptiveTreeQuery(
        config,
        specs,
        noise_multiplier_of_sum=of_sum,
        count_stddev=count_stddev,
      ),
      tfp.restart_query.PeriodicRoundRestartIndicator(
        config.restart_every, config.restart_warmup
      ),
    )

  return correlated.measure_correlated(
    deferred.DeferredQueryFactory(
      build_query, clients_per_round=config.clients_per_round
    ),
    config,
    tree.TreeStrategy(config.restart_every, config.restart_warmup),
    noise_multiplier_of_sum=of_sum,
    next_clip_norm_fn=lambda inner: inner["dp_query_metrics"]["current_clip"],
  )
