"""Poisson sampling: a coin for each user in each round."""

import dataclasses
from typing import ClassVar

import dp_accounting
import numpy as np

from tff_fedemb.participation import participation
from tff_fedemb.participation import sampled

_COINS, _ASSIGNMENT = 0, 1


@dataclasses.dataclass(frozen=True)
class Poisson(sampled.Sampled):
  """Each user takes part with probability `users_per_round / num_users`.

  Users are drawn independently of each other and of earlier rounds. With
  several in a virtual client, each drawn user joins one of `clients_per_round`
  virtual clients, independently of the others (shuffling and cutting into
  groups would cost up to 4 C). A virtual client that nobody joined is left out,
  which is the same as one that sends zeros. Each slot has its own coin and
  place, so that an empty slot changes nobody else's.

  Privacy:
    Unit: user.
    Neighbouring relation: a user's slot stays empty; the number of slots and
      the probability are public.
    Sensitivity: one virtual client changes: from or to nothing for
      `users_per_client` 1 (C), from one update to another above (2 C).
    DpEvent: `PoissonSampledDpEvent`.

  Examples:
    >>> mechanism = fe.Gaussian(noise_multiplier=1.0)
    >>> users = fe.Poisson(users_per_round=50)
    >>> cost = fe.epsilon(mechanism, users, num_users=10_000, rounds=20)
    >>> round(cost, 2)
    0.15
  """

  name = "poisson"
  is_servers_choice = True
  secret_accountants: ClassVar[tuple[str, ...]] = ("rdp", "pld")
  drawn_by = "the number of slots and the probability"

  @property
  def neighboring_relation(self) -> dp_accounting.NeighboringRelation:
    """ADD_OR_REMOVE_ONE, or REPLACE_SPECIAL if the schedule is known.

    For `dp_accounting`, a user whose slot is empty is removed. Under a known
    schedule nobody else's rounds change, and no sampling is to be amplified.
    """
    if self.known_schedule:
      return dp_accounting.NeighboringRelation.REPLACE_SPECIAL
    return dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE

  @property
  def users_in_words(self) -> str:
    """Names the probability with which a user takes part in a round."""
    return (
      f"Poisson sampling: each of {self.num_users:,} users takes part in a "
      f"round independently with probability {self.sampling_probability:.4g}"
    )

  def sampled_event(
    self, event: dp_accounting.DpEvent
  ) -> dp_accounting.DpEvent:
    """Returns `PoissonSampledDpEvent` of the release.

    Args:
      event: Event of the release of the drawn users.
    """
    return dp_accounting.PoissonSampledDpEvent(self.sampling_probability, event)

  def draw_users(self, round_num: int, *, key: int) -> np.ndarray:
    """Draws the users of a round: one coin for each slot.

    Args:
      round_num: Non-negative number of the round.
      key: Key of all rounds.

    Returns:
      Their slots, int64 `[n]`, ascending; n varies from round to round and may
      be 0.
    """
    generator = participation.create_generator(key, round_num, _COINS)
    coins = generator.random(self.num_slots)
    return np.flatnonzero(coins < self.sampling_probability)

  def sample(self, round_num: int, *, key: int) -> list[np.ndarray]:
    """Draws the users of a round, and a virtual client for each of them.

    A user's virtual client is a function of key, round and slot alone, so that
    an empty slot changes nobody else's.

    Args:
      round_num: Non-negative number of the round.
      key: Key of all rounds.

    Returns:
      Int64 arrays of slots, none of them empty: at most `clients_per_round`, or
      one for each drawn user if users are clients of their own.
    """
    slots = self.draw_users(round_num, key=key)
    if self.users_per_client == 1:
      return [slots[i : i + 1] for i in range(slots.size)]
    generator = participation.create_generator(key, round_num, _ASSIGNMENT)
    places = generator.random(self.num_slots)[slots]
    clients = np.floor(places * self.clients_per_round).astype(np.int64)
    # One sort, not one search of the round for every virtual client.
    order = np.argsort(clients, kind="stable")
    sizes = np.bincount(clients, minlength=self.clients_per_round)
    groups = np.split(slots[order], np.cumsum(sizes)[:-1])
    return [group for group in groups if group.size]
