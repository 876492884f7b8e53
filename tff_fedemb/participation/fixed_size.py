"""Sampling without replacement: equally many users in every round."""

import dataclasses

import dp_accounting
import numpy as np

from tff_fedemb import checks
from tff_fedemb.participation import participation
from tff_fedemb.participation import sampled

_DRAW = 2


@dataclasses.dataclass(frozen=True)
class FixedSize(sampled.Sampled):
  """Exactly `users_per_round` users, drawn anew in every round.

  The user of a drawn slot takes part, in that slot's virtual client.
  Replacing one user changes nothing for the others.

  Privacy:
    Unit: user.
    Neighbouring relation: replace one user by another, in the same slot; the
      number of slots is the same in both populations.
    Sensitivity: one virtual client's update changes into another (2 C).
    DpEvent: `SampledWithoutReplacementDpEvent`. No Poisson amplification may
      be claimed. Where each user is a client, one user changes the sum half as
      much under `poisson`, which costs about half or less.

  Examples:
    >>> mechanism = fe.Gaussian(noise_multiplier=1.0)
    >>> users = fe.FixedSize(users_per_round=50)
    >>> cost = fe.epsilon(mechanism, users, num_users=10_000, rounds=20)
    >>> round(cost, 2)
    2.93
  """

  name = "fixed_size"
  users_are = "exact"
  secret_accountants = ("rdp",)
  neighboring_relation = dp_accounting.NeighboringRelation.REPLACE_ONE
  neighboring_relation_in_words = "replace one user"
  sensitivity_in_clip_norms = 2.0

  def __post_init__(self):
    super().__post_init__()
    checks.check_integer("users_per_round", self.users_per_round, minimum=1)

  @property
  def further_accountants(self) -> tuple[str, ...]:
    """PLD, which is tighter than RDP, while the draw is secret.

    Published figures, and plans beside them, are by RDP; runs ask PLD as well.
    """
    return () if self.known_schedule else ("pld",)

  @property
  def users_in_words(self) -> str:
    """Names the numbers of users drawn, and that they are drawn anew."""
    return (
      f"Fixed-size sampling: {self.users_per_round:,} of {self.num_users:,} "
      "users drawn uniformly without replacement in every round"
    )

  def sampled_event(
    self, event: dp_accounting.DpEvent
  ) -> dp_accounting.DpEvent:
    """Returns `SampledWithoutReplacementDpEvent` of the release.

    Args:
      event: Event of the release of the drawn users.
    """
    return dp_accounting.SampledWithoutReplacementDpEvent(
      self.num_slots, self.users_per_round, event
    )

  def sample(self, round_num: int, *, key: int) -> list[np.ndarray]:
    """Draws the virtual clients of a round, of sizes that differ by at most 1.

    It takes time in proportion to the users of the round, not to the
    population.

    Args:
      round_num: Non-negative number of the round.
      key: Key of all rounds.

    Returns:
      `clients_per_round` int64 arrays of slots, `users_per_round` in all.
    """
    slots = participation.create_generator(key, round_num, _DRAW).choice(
      self.num_slots,
      size=int(self.users_per_round),
      replace=False,
      shuffle=True,
    )
    return np.array_split(slots, self.clients_per_round)
