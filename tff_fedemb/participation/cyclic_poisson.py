"""Cyclic Poisson sampling: blocks of users in turn, a coin for each user.

Algorithm 3 of Choquette-Choo et al. 2023, "(Amplified) Banded Matrix
Factorization: A unified approach to private training" (arXiv 2306.08153).
"""

from collections.abc import Iterator
import dataclasses
import functools
from typing import ClassVar

import numpy as np

from tff_fedemb import checks
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.participation import participation
from tff_fedemb.participation import participation_check
from tff_fedemb.participation import poisson

_BLOCKS = 6


# A small integer for each user, kept from one round to the next.
@functools.lru_cache(maxsize=2)
def draw_places(
  num_users: int, count: int, key: int, number: int, stream: int
) -> np.ndarray:
  """Draws one of 0 ... count - 1 for each user, independently and uniformly.

  The same arguments always give the same places. The last two arrays are kept
  for the next call.

  Args:
    num_users: Number of users.
    count: Number of places, at least 1.
    key: See `participation.create_generator`.
    number: Number in place of a round's, as there.
    stream: Stream of the generator, as there.

  Returns:
    Places `[num_users]`, of the smallest unsigned integer type. Do not change
    the array: the next caller gets the same one.
  """
  places = participation.create_generator(key, number, stream).random(num_users)
  return np.floor(places * count).astype(np.min_scalar_type(count))


@dataclasses.dataclass(frozen=True)
class CyclicPoisson(poisson.Poisson):
  """Round t draws each user of block t mod `period`.

  Each user joins one of `period` blocks at random, independently of the others
  and for the whole run. A round draws each user of its block with probability
  `period x users_per_round / num_users`, so that it has `users_per_round` on
  average, independently of each other and of earlier rounds. Virtual clients
  are made as by `poisson`. With period 1 this is `poisson`.

  A user's rounds are whole periods apart. If the matrix of correlated noise has
  at most `period` bands, the user's changes in two rounds are in different rows
  of what is released. Each round is then a sampled Gaussian mechanism of its
  own, whose sensitivity is the norm of a column (theorem 4 of the paper). Other
  matrices mix a user's rounds, and no amplification may be claimed.

  Privacy:
    Unit: user.
    Neighbouring relation: a user's slot stays empty; the number of slots, the
      probability and the period are public. Nobody else changes block, coin or
      virtual client.
    Sensitivity: one virtual client changes: from or to nothing for
      `users_per_client` 1 (C), from one update to another above (2 C); times
      the norm of the matrix's largest column.
    DpEvent: ceil(rounds / period) times `PoissonSampledDpEvent` of a
      `GaussianDpEvent`, for any block. The coins must be secret; the block need
      not be.

  Attributes:
    period: Blocks of users, at least as many as bands [as many as bands].

  Examples:
    >>> mechanism = fe.Banded(noise_multiplier=1.0, num_bands=4)
    >>> users = fe.CyclicPoisson(users_per_round=50, period=4)
    >>> cost = fe.epsilon(mechanism, users, num_users=10_000, rounds=20)
    >>> round(cost, 2)
    1.13
  """

  name = "cyclic_poisson"
  field_of_bands: ClassVar[str | None] = "period"
  is_for_bands = True
  drawn_by = "the number of slots, the probability and the period"

  _: dataclasses.KW_ONLY
  period: int | None = config.field(None, minimum=1)

  def settle(self) -> None:
    """Sets a period of 1, which is Poisson sampling, if none was given.

    Raises:
      errors.FieldError: If a block has too few users for a round, or as in the
        base class.
    """
    super().settle()
    # A period of 1 suits independent noise; for bands, callers give it.
    object.__setattr__(self, "period", self.period or 1)
    if self.num_blocks * self.users_per_round > self.num_slots * (1 + 1e-9):
      raise errors.FieldError(
        "period",
        "be at most num_users / users_per_round ="
        f" {self.num_slots / self.users_per_round:.6g}: a block of"
        f" {self.num_users:,} / {self.period:,} users has no"
        f" {checks.count_in_words(self.users_per_round)} to draw",
        self.period,
      )

  @property
  def num_blocks(self) -> int:
    """The period.

    Raises:
      errors.FieldError: If `settle` has not set it: the users are not known.
    """
    return checks.check_given("num_users", self.period)

  @property
  def sampling_probability(self) -> float:
    """Probability that a user takes part in a given round of their block.

    It is `period` times that of Poisson sampling with as many users in a round.
    """
    # Rounding may make the product of a whole population larger than it is.
    return min(self.num_blocks * self.users_per_round / self.num_slots, 1.0)

  @property
  def min_separation(self) -> int:
    """The period: a user's rounds are those of one block."""
    return self.num_blocks

  @property
  def users_in_words(self) -> str:
    """Names the number of blocks and the probability within a block."""
    return (
      f"Cyclic Poisson sampling: each of {self.num_users:,} users is in one of"
      f" {self.period:,} blocks for the whole run, and round t draws each user"
      f" of block t mod {self.period:,} independently with probability"
      f" {self.sampling_probability:.4g}"
    )

  def draw_blocks(self, key: int) -> np.ndarray:
    """Returns the block of each user, drawn once for the whole run.

    Args:
      key: Key of all rounds.

    Returns:
      Unsigned integers `[num_users]`, each below `period`; do not change the
      array.
    """
    return draw_places(self.num_slots, self.num_blocks, key, 0, _BLOCKS)

  def draw_users(self, round_num: int, *, key: int) -> np.ndarray:
    """Draws the users of a round among those of its block.

    A coin is tossed for every user of the population, so that a user's coin
    does not depend on the blocks of others.

    Args:
      round_num: Non-negative number of the round, t; its block is t mod
        `period`.
      key: Key of all rounds.

    Returns:
      Their slots, int64 `[n]`, ascending.
    """
    slots = super().draw_users(round_num, key=key)
    return slots[self.draw_blocks(key)[slots] == round_num % self.num_blocks]

  def contradictions(
    self, observed: participation_check.ObservedParticipation
  ) -> Iterator[tuple[str, str]]:
    """Yields as the base class does, and a user who is in rounds of two blocks.

    Two rounds are of one block if their difference is a multiple of `period`.

    Args:
      observed: Finding in the trace of at least one round.

    Yields:
      Pairs of an assumption and what the trace shows instead.
    """
    blocks = self.num_blocks
    for user, earlier, later in observed.gaps:
      if (later - earlier) % blocks:
        yield (
          f"a user is in rounds of one block of {blocks:,} alone",
          f"user {user:,} is in rounds {earlier:,} and {later:,}, which are of"
          f" blocks {earlier % blocks:,} and {later % blocks:,}",
        )
    yield from super().contradictions(observed)
