"""Random allocation: every user in one round of each pass, drawn in secret.

Feldman and Shenfeld 2026, "Efficient Privacy Loss Accounting for Subsampling
and Random Allocation" (arXiv 2602.17284).
"""

from collections.abc import Iterator
import dataclasses
import math

import dp_accounting
import numpy as np

from tff_fedemb.participation import cyclic_poisson
from tff_fedemb.participation import participation_check

_PASSES = 8


@dataclasses.dataclass(frozen=True)
class RandomAllocationDpEvent(dp_accounting.DpEvent):
  """Gaussian mechanisms, one of which has the user; nobody knows which one.

  Privacy:
    Unit: one user's update.
    Neighbouring relation: a user's slot stays empty, as the participation has
      it.
    Sensitivity: 1.
    DpEvent: a mixture of Gaussians against one Gaussian.

  Attributes:
    slots: Pairs of a noise multiplier and the number of mechanisms that have
      it; infinite noise stands for ways to take no part.
  """

  slots: tuple[tuple[float, int], ...]

  @property
  def count(self) -> int:
    """Number of mechanisms, and of ways to take no part."""
    return sum(count for _, count in self.slots)


@dataclasses.dataclass(frozen=True)
class RandomAllocation(cyclic_poisson.CyclicPoisson):
  """Each user takes part in exactly one round of every pass.

  A pass has ceil(num_users / users_per_round) rounds. Each user joins one of
  them, anew for every pass and independently of the others, so that cohorts
  vary. Their mean, num_users / rounds of a pass, replaces `users_per_round`,
  which may be up to twice as large where a pass has few rounds of a block.
  Virtual clients are made as by `poisson`.
  With a period, users are in blocks as in `cyclic_poisson`: a block has every
  period-th round, and a user is in one of its rounds of a pass.

  Privacy:
    Unit: user.
    Neighbouring relation: a user's slot stays empty; the number of slots, the
      probability and the period are public. Nobody else changes round or
      virtual client.
    Sensitivity: one virtual client changes: from or to nothing for
      `users_per_client` 1 (C), from one update to another above (2 C); times
      the norm of the matrix's largest column.
    DpEvent: `RandomAllocationDpEvent` for every pass. An unfinished last pass
      may have the user in one of its rounds, or in none.

  Attributes:
    period: Blocks of users, at least as many as bands [as many as bands].

  Examples:
    >>> mechanism = fe.Gaussian(noise_multiplier=1.0)
    >>> users = fe.RandomAllocation(users_per_round=500)
    >>> cost = fe.epsilon(mechanism, users, num_users=10_000, rounds=20)
    >>> round(cost, 2)
    1.36
  """

  name = "random_allocation"
  is_for_bands = False
  secret_accountants = ("allocation",)

  @property
  def further_accountants(self) -> tuple[str, ...]:
    """RDP while the draw is secret, for what needs it, such as tuning."""
    return () if self.known_schedule else ("rdp",)

  def settle(self) -> None:
    """Sets `users_per_round` to the mean of a pass of whole rounds.

    That is lower than what was asked for, unless it would be less than a
    virtual client.

    Raises:
      errors.FieldError: If a block has too few users for a round, or as in the
        base class.
    """
    period = self.period or 1
    rounds = self.num_slots / (self.users_per_round * period)
    # The base classes refuse more users than there are.
    if rounds >= 1:
      mean = self.num_slots / (period * math.ceil(rounds - 1e-9))
      if mean < self.users_per_client <= self.users_per_round:
        # A pass of one round less has a whole virtual client in each.
        mean = self.num_slots / (period * math.floor(rounds))
      mean = int(mean) if mean.is_integer() else mean
      object.__setattr__(self, "users_per_round", mean)
    super().settle()

  @property
  def clients_per_round(self) -> int:
    """Number of virtual clients of a round, rounded up.

    The mean cohort need not be a whole number.
    """
    return math.ceil(self.users_per_round / self.users_per_client - 1e-9)

  @property
  def rounds_of_block(self) -> int:
    """Rounds of a pass that a user may be in: they are in exactly one."""
    return round(1.0 / self.sampling_probability)

  @property
  def rounds_of_pass(self) -> int:
    """Rounds of a pass, those of all blocks."""
    return self.num_blocks * self.rounds_of_block

  def participations(self, rounds: int) -> int:
    """Returns the number of passes, an unfinished one included.

    A user is in one round of each. The result is smaller only if a bound of a
    known schedule is.

    Args:
      rounds: Number of rounds, at least 0.
    """
    passes = -(-rounds // self.rounds_of_pass)
    return min(passes, super().participations(rounds))

  @property
  def users_in_words(self) -> str:
    """Names the rounds of a pass, and with blocks those of a block."""
    rounds = f"{self.rounds_of_pass:,} rounds of a pass"
    if self.num_blocks > 1:
      rounds = (
        f"{self.rounds_of_block:,} rounds that their block, one of"
        f" {self.period:,}, has in a pass of {self.rounds_of_pass:,}"
      )
    return (
      f"Random allocation: each of {self.num_users:,} users takes part in"
      f" exactly one of the {rounds}, drawn anew for every pass"
    )

  def sampled_event(
    self, event: dp_accounting.DpEvent
  ) -> dp_accounting.DpEvent:
    """Returns `RandomAllocationDpEvent` of a whole pass.

    Args:
      event: `GaussianDpEvent` of a round that the user is in.
    """
    noise = event.noise_multiplier
    return RandomAllocationDpEvent(((noise, self.rounds_of_block),))

  def sampled_events(
    self, event: dp_accounting.DpEvent, count: int, *, rounds: int
  ) -> list[tuple[dp_accounting.DpEvent, int]]:
    """Returns an event for every pass, and another one for an unfinished pass.

    In an unfinished last pass, the rounds that did not happen are ways to take
    no part, with infinite noise. If rounds differ in noise, nobody knows which
    noise the last pass has, and it counts as a whole one.

    Args:
      event: `GaussianDpEvent` of each round that the user is in.
      count: Number of rounds that the user may be in, one for each pass.
      rounds: Number of all rounds of the run.

    Returns:
      Pairs of an event and how often it happens.
    """
    whole = (self.sampled_event(event), count)
    last = -(-(rounds % self.rounds_of_pass) // self.num_blocks)
    left_out = self.rounds_of_block - last
    if not last or not left_out or count < self.participations(rounds):
      return [whole]
    part = ((event.noise_multiplier, last), (math.inf, left_out))
    events = [(whole[0], count - 1), (RandomAllocationDpEvent(part), 1)]
    return events if count > 1 else events[1:]

  def draw_users(self, round_num: int, *, key: int) -> np.ndarray:
    """Draws the users of a round: those whose place in this pass it is.

    Args:
      round_num: Non-negative number of the round.
      key: Key of all rounds; a pass draws the places of all users from it.

    Returns:
      Their slots, int64 `[n]`, ascending.
    """
    number, place = divmod(round_num // self.num_blocks, self.rounds_of_block)
    places = cyclic_poisson.draw_places(
      self.num_slots, self.rounds_of_block, key, number, _PASSES
    )
    slots = np.flatnonzero(places == place)
    return slots[self.draw_blocks(key)[slots] == round_num % self.num_blocks]

  def contradictions(
    self, observed: participation_check.ObservedParticipation
  ) -> Iterator[tuple[str, str]]:
    """Yields as the base class does, and a user who missed a whole pass.

    Args:
      observed: Finding in the trace of at least one round.

    Yields:
      Pairs of an assumption and what the trace shows instead.
    """
    fewest = observed.num_rounds // self.rounds_of_pass
    if observed.min_participations < fewest:
      yield (
        f"every user is in exactly one of {self.rounds_of_pass:,} rounds of a"
        " pass",
        f"a user is in {observed.min_participations:,} of"
        f" {observed.num_rounds:,} rounds",
      )
    yield from super().contradictions(observed)
