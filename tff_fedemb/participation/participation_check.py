"""Finds from a run's trace how often users took part."""

from collections.abc import Iterable
import dataclasses
import math

import numpy as np

from tff_fedemb.participation import participation_trace


@dataclasses.dataclass(frozen=True)
class ObservedParticipation:
  """How often, and how far apart, the users of a trace took part.

  Attributes:
    num_users: Size of the population.
    num_rounds: Number of rounds of the trace.
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
    users_alone: Whether each user was a virtual client in every round.
    gaps: Slot, earlier and later round of a few users who came back. The
      differences of these rounds have the same greatest common divisor as those
      of all users.
  """

  num_users: int
  num_rounds: int
  max_participations: int
  most_frequent_user: int | None
  min_participations: int
  min_separation: int | None
  closest_pair: tuple[int, int, int] | None
  min_users_per_round: int
  max_users_per_round: int
  max_clients_per_round: int
  users_alone: bool
  gaps: tuple[tuple[int, int, int], ...]

  @property
  def in_words(self) -> str:
    """A sentence for the reader of a report, with its full stop."""
    separation = ""
    if self.min_separation is not None:
      separation = f", never less than {self.min_separation:,} rounds apart"
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

  It reads each round once, and holds two 32-bit integers for each user.

  Args:
    num_users: Size of the population, at least 1.
    rounds: The rounds from the first one on, as
      `participation_trace.TraceReader.read` yields them.

  Returns:
    The finding, which `Participation.check_trace` compares with a claim.

  Raises:
    participation_trace.TraceError: If a record is damaged.
  """
  last_round = np.full(num_users, -1, np.int32)
  counts = np.zeros(num_users, np.int32)
  sizes = []
  num_clients = []
  pairs: list[tuple[int, int, int]] = []
  gaps: list[tuple[int, int, int]] = []
  users_alone = True
  for recorded in rounds:
    round_num = recorded.number
    slots = recorded.slots
    previous = last_round[slots]
    last_round[slots] = round_num
    counts[slots] += 1
    sizes.append(slots.size)
    num_clients.append(recorded.num_clients)
    users_alone = users_alone and recorded.users_alone
    if slots.size:
      latest = previous.argmax()
      if previous[latest] >= 0:
        pairs.append((int(slots[latest]), int(previous[latest]), round_num))
      gaps += _new_gaps(gaps, slots, previous, round_num)
  # Several users may have the most rounds; name the first to reach them.
  most = int(counts.max())
  frequent = np.flatnonzero(counts == most)
  user = int(frequent[last_round[frequent].argmin()])
  closest = min(pairs, key=lambda pair: pair[2] - pair[1], default=None)
  return ObservedParticipation(
    num_users,
    num_rounds=len(sizes),
    max_participations=most,
    most_frequent_user=user if most else None,
    min_participations=int(counts.min()),
    min_separation=closest and closest[2] - closest[1],
    closest_pair=closest,
    min_users_per_round=min(sizes, default=0),
    max_users_per_round=max(sizes, default=0),
    max_clients_per_round=max(num_clients, default=0),
    users_alone=users_alone,
    gaps=tuple(gaps),
  )


def _new_gaps(
  gaps: Iterable[tuple[int, int, int]],
  slots: np.ndarray,
  previous: np.ndarray,
  round_num: int,
) -> tuple[tuple[int, int, int], ...]:
  """The gaps of a round that lower the greatest common divisor.

  A few of them tell whether all gaps are multiples of a period, so that the
  gaps of all users need not be kept.

  Args:
    gaps: Slot, earlier and later round of the users kept so far.
    slots: `[n]` slots of the users of the round.
    previous: `[n]` the last round of each before this one, -1 for none.
    round_num: Number of the round.

  Returns:
    Gaps to keep beside the earlier ones; mostly none.
  """
  divisor = math.gcd(*(later - earlier for _, earlier, later in gaps))
  found = []
  while True:
    is_odd = previous >= 0
    if divisor:
      is_odd &= (round_num - previous) % divisor != 0
    if not is_odd.any():
      return tuple(found)
    place = is_odd.argmax()
    earlier = int(previous[place])
    found.append((int(slots[place]), earlier, round_num))
    divisor = math.gcd(divisor, round_num - earlier)
