"""Passes over all users, with a minimum separation of each user's rounds.

This is the b-min-sep participation (b = min_separation) of Choquette-Choo et
al. 2023, "(Amplified) Banded Matrix Factorization: A unified approach to
private training", and, with the largest separation, the fixed order of passes
of Choquette-Choo et al. 2023, "Multi-Epoch Matrix Factorization Mechanisms for
Private Machine Learning".
"""

import dataclasses
import functools
import math

import dp_accounting
import numpy as np

from tff_fedemb import checks
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.participation import participation

_ORDER, _SHUFFLE, _GROUPS = 3, 4, 5


# One integer per user, held from the first round of a run on.
@functools.lru_cache(maxsize=1)
def _draw_order(num_users: int, key: int) -> np.ndarray:
  """The users in the order of being dealt into windows, `[num_users]`.

  Args:
    num_users: Number of users; up to 2^31 take 32 bits each.
    key: Key of all rounds.
  """
  dtype = np.int32 if num_users <= 2**31 else np.int64
  order = np.arange(num_users, dtype=dtype)
  participation.create_generator(key, 0, _ORDER).shuffle(order)
  return order


@dataclasses.dataclass(frozen=True)
class MinSeparation(participation.Participation):
  """Nothing is sampled: every user takes part once in every pass.

  A pass has P = ceil(num_users / users_per_round) rounds. The users are spread
  evenly: over the rounds of a pass, over the virtual clients of a round. A
  round has at most `users_per_round` users, a virtual client about
  `users_per_client`.

  Virtual clients are regrouped at random in every pass.

  One permutation of the users, for the whole run, deals them into windows of
  w = P - min_separation + 1 consecutive rounds of a pass; the last window may
  be shorter. The same window of every pass has the same users, who are spread
  anew over its rounds. Between a round of the window in one pass and a round of
  it in the next lie at least P - (w - 1) = min_separation rounds. With the
  largest separation, P, a user's round within a pass is fixed for the whole
  run.

  Privacy:
    Unit: user.
    Neighbouring relation: a user's slot stays empty: its user is absent from
      all rounds, and no other slot moves. The number of slots and the schedule
      are public.
    Sensitivity: one virtual client changes, in one round of every pass and at
      most once in every `min_separation` consecutive rounds: from an update to
      nothing for `users_per_client` 1 (C a round), from one update to another
      above (2 C a round).
    DpEvent: that of the mechanism over all rounds, for that many participations
      at that distance. No amplification by sampling may be claimed.

  Attributes:
    min_separation: Minimum number of rounds from one participation of a user to
      the next [those of a pass over all users].
    max_participations: Maximum number of rounds of a user [as many as the
      separation allows].

  Examples:
    >>> mechanism = fe.Gaussian(noise_multiplier=4.0)
    >>> users = fe.MinSeparation(users_per_round=1_000, min_separation=5)
    >>> cost = fe.epsilon(mechanism, users, num_users=10_000, rounds=20)
    >>> round(cost, 2)
    1.82
  """

  name = "min_separation"
  users_are = "most"
  set_by_users = ("min_separation", "max_participations")
  regrouped_in_every = "pass"
  is_servers_choice = True
  accountants = ("rdp", "pld", "gaussian")
  neighboring_relation = dp_accounting.NeighboringRelation.REPLACE_SPECIAL

  _: dataclasses.KW_ONLY
  min_separation: int | None = config.field(None, minimum=1)
  max_participations: int | None = config.field(None, minimum=1)

  def settle(self) -> None:
    """Sets the largest separation, a pass over all users, if none was given.

    Raises:
      errors.FieldError: If the separation exceeds the rounds of a pass, or as
        in the base class.
    """
    super().settle()
    most = self.rounds_per_pass
    separation = self.min_separation or most
    object.__setattr__(self, "min_separation", separation)
    if separation > most:
      raise errors.FieldError(
        "min_separation",
        f"be at most {most}, the rounds in which"
        f" {checks.count_in_words(self.users_per_round)} users a round use up"
        f" {self.num_users:,}",
        separation,
      )

  @property
  def rounds_per_pass(self) -> int:
    """Number P of rounds in which every user takes part once."""
    return math.ceil(self.num_slots / self.users_per_round)

  def _passes(self, rounds: int) -> int:
    """Number of passes; the last one counts even if it is cut short."""
    return -(-rounds // self.rounds_per_pass)

  def check_rounds(self, rounds: int) -> None:
    """Checks that a user may be in one round of each pass.

    Args:
      rounds: Number of rounds of the run, at least 1.

    Raises:
      errors.FieldError: If `max_participations` is less than the passes.
    """
    passes = self._passes(rounds)
    if (self.max_participations or passes) < passes:
      raise errors.FieldError(
        "max_participations",
        f"be at least {passes}, the passes of {rounds:,} rounds, in each of"
        " which every user takes part",
        self.max_participations,
      )

  def for_rounds(self, rounds: int | None) -> "MinSeparation":
    """Returns the same, with a user in one round of each pass.

    The last pass counts even if it is cut short.

    Args:
      rounds: Number of rounds of the run; None removes the bound.

    Returns:
      The participation; its former `max_participations` is replaced.
    """
    most = None if rounds is None else self._passes(rounds)
    return dataclasses.replace(self, max_participations=most)

  @property
  def users_in_words(self) -> str:
    """Names the separation and, if bounded, the number of a user's rounds."""
    at_most = ""
    if self.max_participations:
      at_most = f", at most {self.max_participations:,} times"
    return (
      f"No sampling: each of {self.num_users:,} users takes part at most "
      f"once in any {self.min_separation:,} consecutive rounds{at_most}, at "
      f"most {checks.count_in_words(self.users_per_round)} users in a round"
    )

  def sample(self, round_num: int, *, key: int) -> list[np.ndarray]:
    """Draws the virtual clients of a round.

    Only the users of the round's window are handled. One shuffle of the window
    decides who is in which of its rounds, and one of the round who is grouped
    with whom.

    Args:
      round_num: Non-negative number of the round.
      key: Key of all rounds; the order of all users is drawn from it once.

    Returns:
      At most `clients_per_round` int64 arrays of slots, none of them empty, at
      most `users_per_round` slots in all.
    """
    place = round_num % self.rounds_per_pass
    separation = checks.check_given("num_users", self.min_separation)
    window_size = self.rounds_per_pass - separation + 1
    first = place - place % window_size
    last = min(first + window_size, self.rounds_per_pass)
    # Round j of a pass begins at place j N / P of the order, rounded down.
    starts = np.arange(first, last + 1) * self.num_slots // self.rounds_per_pass
    users = _draw_order(self.num_slots, key)[starts[0] : starts[-1]]
    # Shuffle which round of the window each user is in: these small numbers
    # shuffle faster than the users, and only the users of one round are needed.
    places = np.arange(last - first, dtype=np.min_scalar_type(window_size))
    rounds = np.repeat(places, np.diff(starts))
    first_round_num = round_num - place + first
    of_window = participation.create_generator(key, first_round_num, _SHUFFLE)
    of_window.shuffle(rounds)
    users = users[rounds == place - first].astype(np.int64)
    of_round = participation.create_generator(key, round_num, _GROUPS)
    of_round.shuffle(users)
    clients = np.array_split(users, self.clients_per_round)
    return [client for client in clients if client.size]
