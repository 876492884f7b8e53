"""What the trace of a run says about how often its users took part."""

import dataclasses
from typing import Any

import numpy as np

from tff_fedemb import checks
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


class ParticipationCheck:
  """Looks at rounds one after the other, at each once.

  Holds two 32-bit integers per user.
  """

  def __init__(self, num_users: int):
    """Starts before the first round.

    Args:
      num_users: Size of the population, at least 1.

    Raises:
      errors.FieldError: If it is not positive.
    """
    checks.check_integer("num_users", num_users, minimum=1)
    self._last_round = np.full(num_users, -1, np.int32)
    self._counts = np.zeros(num_users, np.int32)
    self._observed = ObservedParticipation(num_users)

  @property
  def observed(self) -> ObservedParticipation:
    """What the rounds looked at so far say."""
    return self._observed

  def look_at(
    self, round_num: int, num_clients: int, slots: np.ndarray
  ) -> None:
    """Looks at the next round.

    Args:
      round_num: Its number.
      num_clients: Number of its virtual clients.
      slots: Its users, sorted, int64.
    """
    seen = self._observed
    previous = self._last_round[slots]
    changes: dict[str, Any] = {
      "num_rounds": round_num + 1,
      "min_users_per_round": (
        min(seen.min_users_per_round, slots.size)
        if seen.num_rounds
        else slots.size
      ),
      "max_users_per_round": max(seen.max_users_per_round, slots.size),
      "max_clients_per_round": max(seen.max_clients_per_round, num_clients),
      "users_alone": seen.users_alone and num_clients == slots.size,
    }
    if seen.num_rounds:
      common = int(np.count_nonzero(previous == round_num - 1))
      low, high = seen.common_users or (common, common)
      changes["common_users"] = (min(low, common), max(high, common))
    if slots.size:
      self._last_round[slots] = round_num
      counts = self._counts[slots] + 1
      self._counts[slots] = counts
      most = counts.argmax()
      if counts[most] > seen.max_participations:
        changes["max_participations"] = int(counts[most])
        changes["most_frequent_user"] = int(slots[most])
      latest = previous.argmax()
      earlier = int(previous[latest])
      separation = round_num - earlier
      if earlier >= 0 and (
        seen.min_separation is None or separation < seen.min_separation
      ):
        changes["min_separation"] = separation
        changes["closest_pair"] = (int(slots[latest]), earlier, round_num)
    self._observed = dataclasses.replace(seen, **changes)


def observe(
  trace: participation_trace.TraceReader, *, rounds: int | None = None
) -> ObservedParticipation:
  """Derives from a trace how often and how far apart its users took part.

  Args:
    trace: A reader of it.
    rounds: Only the first so many rounds; all if None.

  Raises:
    participation_trace.TraceError: If the trace is damaged.
    errors.FieldError: If `rounds` is negative or more than the trace holds.
  """
  if rounds is not None:
    checks.check_integer("rounds", rounds, minimum=0, maximum=trace.num_rounds)
  check = ParticipationCheck(trace.num_users)
  for round_num, num_clients, slots in trace.read(0, rounds):
    check.look_at(round_num, num_clients, slots)
  return check.observed
