"""Devices that check in when they can: the server does not draw who is there.

In production (Bonawitz et al. 2019, "Towards Federated Learning at Scale:
System Design"), the users of a round are those whose devices were there, were
selected and reported in time. Nobody knows with which probability a device is
there, so sampling amplifies nothing. The guarantee rests on what the server
enforces: how far apart a user's rounds are, and how many they are (Kairouz et
al. 2021, "Practical and Private (Deep) Learning without Sampling or Shuffling";
Xu et al. 2023, "Federated Learning of Gboard Language Models with Differential
Privacy").
"""

import dataclasses
import math

import dp_accounting
import numpy as np

from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.participation import participation

_EQUAL_WORK = (
  "every device does the same work or takes the time of the most, so that a"
  " user's data do not decide whether their device drops out or is late"
)
_ASSUMED = (
  "it is ASSUMED, and not enforced, that a user's data do not decide whether"
  " their device drops out or is late; equal work would see to it"
)


@dataclasses.dataclass(frozen=True)
class CheckIns(participation.Participation):
  """The devices that are there, within bounds that the server enforces.

  `users_per_round` is the report goal: a round ends when so many devices have
  reported, and its sum is divided by the goal even if fewer have. Only released
  rounds count: an abandoned round releases nothing, provided that nobody sees
  its sum.

  Privacy:
    Unit: user.
    Neighbouring relation: zero-out of one user, whose device comes and goes as
      before. Whether it drops out or is late must not depend on the user's
      data, or other users would be counted in their place. `equal_work` ensures
      this; without it, it is an assumption.
    Sensitivity: from an update to nothing (C a round), in at most
      `max_participations` rounds, at most one in any `min_separation`
      consecutive ones.
    DpEvent: that of the mechanism over all rounds, for that many participations
      at that distance. No amplification by sampling may be claimed, nor a
      separation or a number that was only measured.

  Attributes:
    min_separation: Minimum number of rounds from one participation of a user to
      the next, which the server enforces [1].
    max_participations: Maximum number of rounds of a user, which the server
      enforces [as many as the separation allows].
    equal_work: Whether all devices do the same work, or wait as long as the one
      with the most.
  """

  name = "check_ins"
  users_are = "most"
  accountants = ("rdp", "pld", "gaussian")
  neighboring_relation = dp_accounting.NeighboringRelation.REPLACE_SPECIAL
  neighboring_relation_in_words = (
    "zero out one user, whose device comes and goes as before and adds nothing"
  )
  amplification = "none: who is there is not drawn by the server"

  _: dataclasses.KW_ONLY
  min_separation: int | None = config.field(None, minimum=1)
  max_participations: int | None = config.field(None, minimum=1)
  equal_work: bool = False

  def __post_init__(self):
    super().__post_init__()
    if self.users_per_client != 1:
      raise errors.FieldError(
        "users_per_client",
        "be 1 with participation check_ins, where a device reports by itself",
        self.users_per_client,
      )

  def settle(self) -> None:
    """Sets a separation of 1, if none was given: rounds may be consecutive."""
    super().settle()
    if self.min_separation is None:
      object.__setattr__(self, "min_separation", 1)

  def resized(self, *, num_users: int, users_per_round: float) -> "CheckIns":
    """Returns the same for another population and cohort.

    The separation stays if there are users enough for it. Else it becomes that
    of whole passes over the population.

    Args:
      num_users: Size of the population.
      users_per_round: Number of users of a round.
    """
    most = math.ceil(num_users / users_per_round)
    return dataclasses.replace(
      self,
      num_users=num_users,
      users_per_round=users_per_round,
      min_separation=min(self.min_separation or 1, most),
    )

  @property
  def breaks_if(self) -> str:
    """Without `equal_work`, data that decide who comes void the guarantee."""
    if self.equal_work:
      return super().breaks_if
    return (
      "It breaks if a user's data decide whether their device drops out or is"
      " late."
    )

  @property
  def users_in_words(self) -> str:
    """Names the bounds that the server enforces, and what is only assumed."""
    at_most = ""
    if self.max_participations:
      at_most = f" and at most {self.max_participations:,} times"
    return (
      f"No sampling: of {self.num_users:,} users those take part whose devices"
      " are there, at most"
      f" {self.users_per_round:,} in a round, by which its sum is divided"
      " whoever came; the server enforces that a user takes part at most once"
      f" in any {self.min_separation:,} consecutive released"
      f" rounds{at_most}; {_EQUAL_WORK if self.equal_work else _ASSUMED}"
    )

  def sample(self, round_num: int, *, key: int) -> list[np.ndarray]:
    """Refuses: a deployment says who is there, no key.

    Raises:
      errors.FieldError: Always.
    """
    raise errors.FieldError(
      "participation",
      "be another one without a deployment, which says whose devices are there",
      self.name,
    )
