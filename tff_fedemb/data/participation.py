"""Which users form which virtual clients in a round (Xu et al. 2023, sec. 3).

Users are slots 0 ... N - 1 of a population: a slot is a person's place in it,
whatever the identifier says. Everything drawn in a round is a function of the
seed, the round and the slot alone, so a run resumes from its round number, and
the guarantee's neighbours can be compared slot by slot:

* Poisson: each slot has a coin and, with several users in a virtual client, a
  virtual client of its own. Adding or removing the last user (any user, by
  symmetry) leaves everybody else's coin and virtual client as they were.
* Fixed size: whoever sits in a drawn slot takes part, in that slot's virtual
  client. Replacing one user changes nothing for the others.
"""

import abc
import dataclasses

import numpy as np

# Streams of the generator that must not share their numbers.
_COINS, _ASSIGNMENT, _DRAW = range(3)


def _generator(seed: int, round_num: int, stream: int) -> np.random.Generator:
  return np.random.Generator(
      np.random.Philox(np.random.SeedSequence([seed, round_num, stream]))
  )


@dataclasses.dataclass(frozen=True)
class Sampler(abc.ABC):
  """Draws the virtual clients of a round.

  Attributes:
    num_users: Size N of the population.
    clients_per_round: Number m of virtual clients in a round (expected, where
      it is random).
    users_per_client: Users k merged in a virtual client (expected, where it is
      random).
    seed: Non-negative seed of all rounds.
  """

  num_users: int
  clients_per_round: int
  users_per_client: int = 1
  seed: int = 0

  def __post_init__(self):
    for name in ("num_users", "clients_per_round", "users_per_client"):
      value = getattr(self, name)
      if value < 1:
        raise ValueError(f"{name} must be at least 1, found {value}.")
    if self.seed < 0:
      raise ValueError(f"seed must be at least 0, found {self.seed}.")
    if self.users_per_round > self.num_users:
      raise ValueError(
          "clients_per_round x users_per_client must be at most the number of"
          f" users, {self.num_users}, found {self.clients_per_round} x"
          f" {self.users_per_client} = {self.users_per_round}."
      )

  @property
  def users_per_round(self) -> int:
    """Number of users in a round (expected, where it is random)."""
    return self.clients_per_round * self.users_per_client

  @abc.abstractmethod
  def sample(self, round_num: int) -> list[np.ndarray]:
    """Draws the virtual clients of a round.

    Args:
      round_num: Non-negative number of the round.

    Returns:
      One int64 array of slots per virtual client, none of them empty. A slot
      is in at most one of them.
    """


@dataclasses.dataclass(frozen=True)
class PoissonSampler(Sampler):
  """Each user takes part with probability m k / N, independently.

  With `users_per_client` above 1 each of them joins one of m virtual clients,
  independently of the others; a virtual client that nobody joined is left out,
  which is the same as one that sends zeros. With 1, each user is a virtual
  client and their number is random.

  Privacy:
    Unit: a user.
    Neighbouring relation: add or remove one user.
    Sensitivity: one virtual client changes: from or to nothing for
      `users_per_client` 1 (C), from one update to another above (2 C).
    DpEvent: `PoissonSampledDpEvent(m k / N, ...)`.

  Attributes:
    sampling_probability: Probability of a user, m k / N unless given: a
      neighbouring population has the same probability with another N.
  """

  sampling_probability: float | None = None

  def __post_init__(self):
    super().__post_init__()
    if self.sampling_probability is None:
      object.__setattr__(
          self, "sampling_probability", self.users_per_round / self.num_users
      )
    if not 0.0 < self.sampling_probability <= 1.0:
      raise ValueError(
          "sampling_probability must be in (0, 1], found"
          f" {self.sampling_probability}."
      )

  def sample(self, round_num: int) -> list[np.ndarray]:
    coins = _generator(self.seed, round_num, _COINS).random(self.num_users)
    slots = np.flatnonzero(coins < self.sampling_probability)
    if self.users_per_client == 1:
      return [slots[i : i + 1] for i in range(slots.size)]
    places = _generator(self.seed, round_num, _ASSIGNMENT).random(
        self.num_users
    )
    clients = np.floor(places[slots] * self.clients_per_round).astype(np.int64)
    groups = (slots[clients == i] for i in range(self.clients_per_round))
    return [group for group in groups if group.size]


@dataclasses.dataclass(frozen=True)
class FixedSizeSampler(Sampler):
  """Exactly m k users without replacement, k in each of m virtual clients.

  Privacy:
    Unit: a user.
    Neighbouring relation: replace one user by another.
    Sensitivity: one virtual client's update changes into another (2 C).
    DpEvent: `SampledWithoutReplacementDpEvent(N, m k, ...)`. No Poisson
      amplification may be claimed.
  """

  def sample(self, round_num: int) -> list[np.ndarray]:
    # Linear in the users of the round, not in those of the population.
    slots = _generator(self.seed, round_num, _DRAW).choice(
        self.num_users, size=self.users_per_round, replace=False, shuffle=True
    )
    return list(slots.reshape(self.clients_per_round, self.users_per_client))


# A new way to take part is one class and one line here.
SAMPLERS: dict[str, type[Sampler]] = {
    "fixed_size": FixedSizeSampler,
    "poisson": PoissonSampler,
}


def create_sampler(
    name: str,
    *,
    num_users: int,
    clients_per_round: int,
    users_per_client: int = 1,
    seed: int = 0,
) -> Sampler:
  """Creates a sampler by name.

  Args:
    name: A key of `SAMPLERS`.
    num_users: Size of the population.
    clients_per_round: (Expected) number of virtual clients in a round.
    users_per_client: (Expected) number of users in a virtual client.
    seed: Seed of all rounds.

  Returns:
    The sampler.

  Raises:
    ValueError: If the name is unknown or a number out of its range.
  """
  if name not in SAMPLERS:
    raise ValueError(
        f"participation must be one of {sorted(SAMPLERS)}, found {name!r}."
    )
  return SAMPLERS[name](
      num_users=num_users,
      clients_per_round=clients_per_round,
      users_per_client=users_per_client,
      seed=seed,
  )
