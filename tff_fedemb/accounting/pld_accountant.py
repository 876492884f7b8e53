"""Privacy loss distributions: what floats leave of them, and fixed cohorts.

A distribution of T rounds is the T-th power of a Fourier transform. Each of the
transform's n numbers is wrong by about u = 2^-53, its power by T u, and so a
cell by white noise, whose sum over the cells of a tail is about T u |p|
sqrt(n / 3.5 s), where |p| <= 1 is the norm of a round's probabilities, and s is
the deviation of T rounds in cells. A tail of that probability is noise: at
10,000 rounds, epsilon at a delta below 1e-12 means nothing. Against 64 bits,
the most that a delta was wrong by is 3.4 T u. So 8 T u is taken off delta.

A fixed-size sample has m of N users. With q = m / N, what replacing a user
changes is dominated by N(0, z^2) against (1 - q) N(0, z^2) + q N(1, z^2) where
epsilon is below 0, and the other way around above (Balle, Barthe and Gaboardi
2018, "Privacy Amplification by Subsampling", theorem 11; Zhu, Dong and Wang
2022, "Optimal Accounting of Differential Privacy via Characteristic Function",
theorems 10 and 11). Neither pair is enough by itself for many rounds (Lebeda et
al. 2024, arXiv 2405.20769).
"""

from collections.abc import Iterable
import functools
import math
from typing import Any

import dp_accounting
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution
import numpy as np

from tff_fedemb.accounting import gaussian_accountant

# Rounding may move a delta by this much in each round. Cutting off an event's
# distribution and composing it with others count as this many rounds.
_LOST_BY_ROUND = 2.0**-50
_ROUNDS_OF_EVENT = 4
# Probability that is cut off where losses are high.
_TAIL = 1e-20
# Losses of so small a probability, at the low end, are rounded up to one cell:
# fewer cells leave less noise of rounding.
_LOW_TAIL = 1e-12

_GaussianLoss = dp_accounting.pld.privacy_loss_mechanism.GaussianPrivacyLoss
_FixedSize = dp_accounting.SampledWithoutReplacementDpEvent
_Poisson = dp_accounting.PoissonSampledDpEvent


def lost_delta(counts: Iterable[int]) -> float:
  """Returns by how much a delta of composed distributions may be too small.

  Args:
    counts: Number of rounds, or passes, of each event.

  Returns:
    8 T u of the module, with four rounds more for every event; at least 0.
  """
  return _LOST_BY_ROUND * sum(count + _ROUNDS_OF_EVENT for count in counts)


def _fixed_size(
  share: float,
  noise_multiplier: float,
  interval: float,
) -> privacy_loss_distribution.PrivacyLossDistribution:
  """The losses of a round that has a share of all users.

  It is made from hockey-stick divergences on a grid of epsilons. From epsilon 0
  on they are `share` times those of the Gaussian mechanism at log(1 +
  (exp(epsilon) - 1) / share); those at -epsilon follow by symmetry.

  Args:
    share: q, users of a round over all users, in (0, 1].
    noise_multiplier: z in units of the sensitivity, positive.
    interval: Step of the grid of losses.
  """
  loss = _GaussianLoss(noise_multiplier)
  known = gaussian_accountant.epsilon_of(noise_multiplier, _TAIL / share)
  with np.errstate(divide="ignore"):
    most = np.logaddexp(np.log1p(-share), np.log(share) + known)
  epsilons = interval * np.arange(math.ceil(most / interval) + 1)
  # All users together have log(1 + (exp(epsilon) - 1) / share), in range.
  of_all = np.log1p(np.expm1(np.minimum(epsilons, 30.0)) / share)
  of_all += np.maximum(epsilons - 30.0, 0.0)
  above = share * np.asarray(loss.get_delta_for_epsilon(of_all))
  discounted = np.exp(-epsilons) * above
  below = discounted - np.expm1(-epsilons)
  least = int(np.argmax(discounted < _LOW_TAIL)) or len(epsilons) - 1
  return privacy_loss_distribution.PrivacyLossDistribution(
    pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
      interval,
      -least,
      len(epsilons) - 1,
      np.concatenate([below[least:0:-1], above]).clip(0.0, 1.0),
    )
  )


# Searches and curves over rounds ask for the same round again.
@functools.lru_cache(maxsize=4)
def _of_round(
  event: Any,
  relation: dp_accounting.NeighboringRelation,
  interval: float,
) -> privacy_loss_distribution.PrivacyLossDistribution:
  """The losses of one round of drawn users with Gaussian noise.

  Args:
    event: Event of the round, `_FixedSize` or `_Poisson`, with noise.
    relation: Relation of the accountant; one user is replaced in `_FixedSize`.
    interval: Step of the grid of losses.
  """
  noise_multiplier = event.event.noise_multiplier
  if isinstance(event, _FixedSize):
    share = event.sample_size / event.source_dataset_size
    return _fixed_size(share, noise_multiplier, interval)
  return privacy_loss_distribution.from_gaussian_mechanism(
    noise_multiplier,
    value_discretization_interval=interval,
    sampling_prob=event.sampling_probability,
    neighboring_relation=relation,
  )


class PldAccountant(dp_accounting.pld.PLDAccountant):
  """PLD for fixed cohorts too, and a valid bound in spite of rounding.

  Privacy:
    Unit, neighbouring relation, sensitivity: those of the events.
    DpEvent: those of `dp_accounting`'s own; `SampledWithoutReplacementDpEvent`
      of a `GaussianDpEvent`, where one user is replaced.
  """

  _pld: Any

  def __init__(
    self,
    neighboring_relation: dp_accounting.NeighboringRelation = (
      dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    ),
    value_discretization_interval: float = 1e-4,
  ):
    """Creates an empty accountant.

    Args:
      neighboring_relation: The relation of the events.
      value_discretization_interval: Step of the grid of losses, positive;
        larger steps are quicker and less tight.
    """
    super().__init__(neighboring_relation, value_discretization_interval)
    self._interval = value_discretization_interval
    self._counts: list[int] = []

  def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
    """Composes an event, of drawn users by `_of_round`.

    It counts the rounds of every event, because rounding errors grow with them.
    """
    if do_compose:
      self._counts.append(count)
    relation = self.neighboring_relation
    is_drawn = isinstance(event, _Poisson) and event.sampling_probability > 0
    if relation is dp_accounting.NeighboringRelation.REPLACE_ONE:
      is_drawn = is_drawn or isinstance(event, _FixedSize)
    if not is_drawn or not isinstance(
      event.event, dp_accounting.GaussianDpEvent
    ):
      return super()._maybe_compose(event, count, do_compose)
    if do_compose and event.event.noise_multiplier == 0:
      self._contains_non_dp_event = True
    elif do_compose:
      of_round = _of_round(event, relation, self._interval)
      self._pld = self._pld.compose(of_round.self_compose(count))
    return None

  @property
  def lost_delta(self) -> float:
    """The most by which a delta may be too small, for all events so far."""
    return lost_delta(self._counts)

  def get_delta(self, target_epsilon: Any) -> Any:
    """Returns an upper bound.

    Args:
      target_epsilon: One number, or ascending numbers `[n]`.

    Returns:
      Delta in [0, 1], one for each epsilon; `lost_delta` is added to it.
    """
    return np.minimum(super().get_delta(target_epsilon) + self.lost_delta, 1.0)

  def get_epsilon(self, target_delta: float) -> float:
    """Returns an upper bound; infinity if delta is within rounding errors.

    Args:
      target_delta: In (0, 1).

    Returns:
      Epsilon at `target_delta` less `lost_delta`.
    """
    left = target_delta - self.lost_delta
    return super().get_epsilon(left) if left > 0.0 else math.inf
