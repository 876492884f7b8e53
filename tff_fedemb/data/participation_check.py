"""How often users took part in a run, by its trace."""

from collections.abc import Iterable
import dataclasses
import math
from typing import Any

import numpy as np

from tff_fedemb.data import participation_trace


@dataclasses.dataclass(frozen=True)
class ObservedParticipation:
  """How often, and how far apart, the users of a trace took part.

  Attributes:
    num_users: Size of the population.
    num_rounds: Number of rounds looked at.
    max_participations: Largest number of rounds of one user.
    most_frequent_user: Slot of the first user who reached it; None if nobody
      took part.
    min_participations: Smallest number of rounds of one user.
    min_separation: Smallest difference between the numbers of two rounds of one
      user; None if nobody took part twice.
    closest_pair: Slot, earlier and later round of the first user with this
      difference; None if nobody took part twice.
    min_users_per_round: Smallest number of users in a round, 0 without rounds.
    max_users_per_round: Largest number of users in a round, 0 without rounds.
    max_clients_per_round: Largest number of virtual clients in a round.
    users_alone: Whether in every round each user was a virtual client.
    gaps: Slot, earlier and later round of a few users who came back, such that
      the greatest common divisor of these differences is that of all.
  """

  num_users: int
  num_rounds: int = 0
  max_participations: int = 0
  most_frequent_user: int | None = None
  min_participations: int = 0
  min_separation: int | None = None
  closest_pair: tuple[int, int, int] | None = None
  min_users_per_round: int = 0
  max_users_per_round: int = 0
  max_clients_per_round: int = 0
  users_alone: bool = True
  gaps: tuple[tuple[int, int, int], ...] = ()

  @property
  def in_words(self) -> str:
    """A sentence for the reader of a report."""
    separation = (
      ""
      if self.min_separation is None
      else f", never less than {self.min_separation:,} rounds apart"
    )
    return (
      f"In the trace of {self.num_rounds:,} rounds: "
      f"{self.min_users_per_round:,} to {self.max_users_per_round:,} "
      "users a round, nobody twice in a round, nobody more than "
      f"{self.max_participations:,} times{separation}."
    )


def observe(
  num_users: int, rounds: Iterable[participation_trace.RecordedRound]
) -> ObservedParticipation:
  """Derives from a trace how often and how far apart its users took part.

  Looks at each round once. Holds two 32-bit integers per user.

  Args:
    num_users: Size of the population.
    rounds: The rounds from the first one on, as
      `participation_trace.TraceReader.read` yields them.
  """
  seen = ObservedParticipation(num_users)
  last_round = np.full(num_users, -1, np.int32)
  counts = np.zeros(num_users, np.int32)
  for recorded in rounds:
    round_num, slots = recorded.number, recorded.slots
    previous = last_round[slots]
    last_round[slots] = round_num
    counts[slots] += 1
    changes: dict[str, Any] = {
      "num_rounds": round_num + 1,
      "min_users_per_round": slots.size,
      "max_users_per_round": max(seen.max_users_per_round, slots.size),
      "max_clients_per_round": max(
        seen.max_clients_per_round, recorded.num_clients
      ),
      "users_alone": seen.users_alone and recorded.users_alone,
    }
    if seen.num_rounds:
      changes["min_users_per_round"] = min(seen.min_users_per_round, slots.size)
    if slots.size:
      most = slots[counts[slots].argmax()]
      if counts[most] > seen.max_participations:
        changes["max_participations"] = int(counts[most])
        changes["most_frequent_user"] = int(most)
      latest = previous.argmax()
      earlier = int(previous[latest])
      separation = round_num - earlier
      if earlier >= 0 and separation < (seen.min_separation or math.inf):
        changes["min_separation"] = separation
        changes["closest_pair"] = (int(slots[latest]), earlier, round_num)
      changes["gaps"] = seen.gaps + _new_gaps(
        seen.gaps, slots, previous, round_num
      )
    seen = dataclasses.replace(seen, **changes)
  return dataclasses.replace(seen, min_participations=int(counts.min()))


def _new_gaps(
  gaps: Iterable[tuple[int, int, int]],
  slots: np.ndarray,
  previous: np.ndarray,
  round_num: int,
) -> tuple[tuple[int, int, int], ...]:
  """The gaps of a round that make the greatest common divisor smaller."""
  divisor = math.gcd(*(later - earlier for _, earlier, later in gaps))
  found = []
  while True:
    odd = (previous >= 0) & (
      (round_num - previous) % divisor != 0 if divisor else True
    )
    if not odd.any():
      return tuple(found)
    place = odd.argmax()
    found.append((int(slots[place]), int(previous[place]), round_num))
    divisor = math.gcd(divisor, round_num - int(previous[place]))
