"""What the trace of a run says about how often its users took part."""

from collections.abc import Iterable
import dataclasses
import math
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class ObservedParticipation:
  """How often, and how far apart, the users of a trace took part.

  Attributes:
    num_users: Size of the population.
    num_rounds: Number of rounds looked at.
    max_participations: Largest number of rounds of one user.
    most_frequent_user: Slot of the first user who reached it; None if nobody
      took part.
    min_separation: Smallest difference between the numbers of two rounds of one
      user; None if nobody took part twice.
    closest_pair: Slot, earlier and later round of the first user with this
      difference; None if nobody took part twice.
    min_users_per_round: Smallest number of users in a round, 0 without rounds.
    max_users_per_round: Largest number of users in a round, 0 without rounds.
    max_clients_per_round: Largest number of virtual clients in a round.
    users_alone: Whether in every round each user was a virtual client.
    common_users: Smallest and largest number of users that two consecutive
      rounds have in common; None for less than two rounds.
  """

  num_users: int
  num_rounds: int = 0
  max_participations: int = 0
  most_frequent_user: int | None = None
  min_separation: int | None = None
  closest_pair: tuple[int, int, int] | None = None
  min_users_per_round: int = 0
  max_users_per_round: int = 0
  max_clients_per_round: int = 0
  users_alone: bool = True
  common_users: tuple[int, int] | None = None


def observe(
  num_users: int, rounds: Iterable[tuple[int, int, np.ndarray]]
) -> ObservedParticipation:
  """Derives from a trace how often and how far apart its users took part.

  Looks at each round once. Holds two 32-bit integers per user.

  Args:
    num_users: Size of the population.
    rounds: From the first one on, as `participation_trace.TraceReader.read`
      yields them.
  """
  seen = ObservedParticipation(num_users)
  last_round = np.full(num_users, -1, np.int32)
  counts = np.zeros(num_users, np.int32)
  for round_num, num_clients, slots in rounds:
    previous = last_round[slots]
    last_round[slots] = round_num
    counts[slots] += 1
    changes: dict[str, Any] = {
      "num_rounds": round_num + 1,
      "min_users_per_round": slots.size,
      "max_users_per_round": max(seen.max_users_per_round, slots.size),
      "max_clients_per_round": max(seen.max_clients_per_round, num_clients),
      "users_alone": seen.users_alone and num_clients == slots.size,
    }
    if seen.num_rounds:
      changes["min_users_per_round"] = min(seen.min_users_per_round, slots.size)
      common = int(np.count_nonzero(previous == round_num - 1))
      low, high = seen.common_users or (common, common)
      changes["common_users"] = (min(low, common), max(high, common))
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
    seen = dataclasses.replace(seen, **changes)
  return seen
