"""Tree aggregation whose clip norm changes with every tree.

Kairouz et al. 2021, "Practical and Private (Deep) Learning without Sampling or
Shuffling"; Andrew et al. 2021, "Differentially Private Learning with Adaptive
Clipping".
"""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_fedemb import errors
from tff_fedemb.mechanisms import adaptive_gaussian
from tff_fedemb.mechanisms import mechanism
from tff_fedemb.mechanisms import tree

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_privacy as tfp

  from tff_fedemb.mechanisms import correlated_query


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaptiveTreeConfig(
  tree.TreeConfig, adaptive_gaussian.AdaptiveClippingConfig
):
  """Tree aggregation with adaptive clipping.

  As `tree.TreeConfig`, in trees of `restart_every` rounds. `clip_norm` is the
  clip norm C of the first tree. A quantile of the updates' norms is followed as
  in `adaptive_gaussian`; the noise of its counts has a tree of its own. When a
  tree is complete, the estimate of the quantile becomes the clip norm of the
  next one.

  Privacy:
    Unit: one virtual client's update.
    Neighbouring relation: zero-out of one update, by which the sum changes by
      at most C and the count, of +-1/2 for each update, by 1/2.
    Sensitivity: C and 1/2 together, one unit of the pair, in every node above
      a round that a user is in; 2 C and 1, two units, for one *user* among
      several in a virtual client. C is constant in each tree.
    DpEvent: `GaussianDpEvent(z / s)` for the trees of sums and of counts
      together, over the whole run: s is the sensitivity of the `TreeStrategy`,
      and z = `noise_multiplier` is split between sums and counts as in
      `adaptive_gaussian`. No amplification. `NonPrivateDpEvent` at noise
      multiplier 0.

  Examples:
    >>> mechanism = fe.AdaptiveTree(noise_multiplier=4.0, restart_every=10)
    >>> users = fe.MinSeparation(users_per_round=1_000)
    >>> cost = fe.epsilon(mechanism, users, num_users=10_000, rounds=20)
    >>> round(cost, 2)
    2.7
  """

  next_clip_norm_fn = staticmethod(
    lambda inner: inner["dp_query_metrics"]["current_clip"]
  )
  is_compared = False

  def __post_init__(self):
    super().__post_init__()
    if self.restart_every is None:
      raise errors.FieldError(
        "restart_every",
        "be given with aggregator adaptive_tree, which takes its clip norm anew"
        " with every tree",
        None,
      )

  def build_tree(
    self, specs: tuple[tf.TensorSpec, ...], made: mechanism.Mechanism
  ) -> tfp.DPQuery:
    """Builds the query of sums and counts, each with a tree of its own.

    When both trees restart, the query takes its estimate of the quantile as the
    clip norm of the next ones.

    Args:
      specs: Shapes of an update, nested.
      made: The mechanism, whose clients per round scale the noise on the count.

    Returns:
      tensorflow-privacy's tree aggregation with a clip norm that follows a
      quantile.
    """

    def build_sum(clip_norm: float, stddev: float, is_of_counts: bool):
      """A tree for sums or for counts; with a seed, their noise differs."""
      noise_seed = self.noise_seed
      record_specs = specs
      if is_of_counts:
        record_specs = tf.TensorSpec([])
        if noise_seed is not None:
          # More than the sum's tree will ever count up to.
          noise_seed += 2**40
      return correlated_query.TreeSumQuery(
        record_specs,
        clip_norm=clip_norm,
        stddev=stddev,
        noise_seed=noise_seed,
      )

    return self.build_adaptive_query(
      made, tfp.QAdaClipTreeResSumQuery, specs, build_sum=build_sum
    )
