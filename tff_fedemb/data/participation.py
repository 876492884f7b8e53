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
* Minimum separation: nothing is sampled, every slot takes part once in every
  pass over the population. A slot whose user is absent stays where it is and
  changes nothing for the others.
"""

import abc
import dataclasses
import functools

import numpy as np

# Streams of the generator that must not share their numbers.
_COINS, _ASSIGNMENT, _DRAW, _ORDER, _SHUFFLE, _GROUPS = range(6)


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
      random; at most, where users are spread evenly).
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
    """Number m k of users in a round: exact, expected or at most."""
    return self.clients_per_round * self.users_per_client

  def max_participations(self, rounds: int) -> int | None:
    """Rounds that a user takes part in at most; None if that may be all.

    Args:
      rounds: Number of rounds, at least 1.
    """
    del rounds  # Whoever is drawn anew may be drawn every time.
    return None

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
    # One sort, not one search of the round for every virtual client.
    order = np.argsort(clients, kind="stable")
    ends = np.cumsum(np.bincount(clients, minlength=self.clients_per_round))
    groups = np.split(slots[order], ends[:-1])
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


@dataclasses.dataclass(frozen=True)
class MinSeparationSampler(Sampler):
  """Passes over all users, each user's rounds at least so many apart.

  A pass has P = ceil(N / (m k)) rounds, and each user takes part in exactly one
  of them. The users are spread evenly: over the rounds of a pass, over the
  virtual clients of a round. A round has at most m k users, a virtual client at
  most k.

  One permutation of the users, for the whole run, deals them into windows of
  w = P - min_separation + 1 consecutive rounds of a pass; the last window may
  be shorter. The same window of every pass has the same users, who are spread
  anew over its rounds in every pass: between a round of the window in one pass
  and a round of it in the next lie at least P - (w - 1) = min_separation
  rounds. With the largest separation, P, a user's round within a pass is fixed
  for the whole run.

  This is the b-min-sep participation (b = min_separation) of Choquette-Choo et
  al. 2023, "(Amplified) Banded Matrix Factorization: A unified approach to
  private training", and, with the largest separation, the fixed order of
  passes of Choquette-Choo et al. 2023, "Multi-Epoch Matrix Factorization
  Mechanisms for Private Machine Learning".

  Privacy:
    Unit: a user.
    Neighbouring relation: zero-out of one user's slot: its user is absent from
      all rounds, and no other slot moves.
    Sensitivity: one virtual client changes, in one round of every pass and at
      most once in every `min_separation` consecutive rounds: from an update to
      nothing for `users_per_client` 1 (C a round), from one update to another
      above (2 C a round).
    DpEvent: that of the mechanism over all rounds, for so many participations
      so far apart. No amplification by sampling may be claimed.

  Holds one integer per user from the first round on.

  Attributes:
    min_separation: Smallest difference between the numbers of two rounds that
      one user takes part in, in 1 ... P; P if None.
    regroup_clients: Whether the users of a round form other virtual clients,
      at random, in every pass. If not, virtual clients are fixed for the whole
      run, which needs the largest separation.
  """

  min_separation: int | None = None
  regroup_clients: bool = True

  def __post_init__(self):
    super().__post_init__()
    if self.min_separation is None:
      object.__setattr__(self, "min_separation", self.rounds_per_pass)
    if not 1 <= self.min_separation <= self.rounds_per_pass:
      raise ValueError(
        "min_separation must be at least 1 and at most the"
        f" {self.rounds_per_pass} rounds of a pass, found"
        f" {self.min_separation}."
      )
    if not self.regroup_clients and self.min_separation < self.rounds_per_pass:
      raise ValueError(
        "regroup_clients must be true unless min_separation is the"
        f" {self.rounds_per_pass} rounds of a pass, found"
        f" {self.regroup_clients} with min_separation {self.min_separation}."
      )

  @property
  def rounds_per_pass(self) -> int:
    """Number P of rounds in which every user takes part once."""
    return -(-self.num_users // self.users_per_round)

  def max_participations(self, rounds: int) -> int:
    """Once in each pass, the last of which may be cut short."""
    return -(-rounds // self.rounds_per_pass)

  @functools.cached_property
  def _order(self) -> np.ndarray:
    """The users in the order in which they are dealt into windows."""
    dtype = np.int32 if self.num_users <= 2**31 else np.int64
    order = np.arange(self.num_users, dtype=dtype)
    _generator(self.seed, 0, _ORDER).shuffle(order)
    return order

  def sample(self, round_num: int) -> list[np.ndarray]:
    place = round_num % self.rounds_per_pass
    window_size = self.rounds_per_pass - self.min_separation + 1
    first = place - place % window_size
    last = min(first + window_size, self.rounds_per_pass)
    # Round j of a pass begins at place j N / P of the order, rounded down.
    starts = np.arange(first, last + 1) * self.num_users // self.rounds_per_pass
    users = self._order[starts[0] : starts[-1]]
    # Which round of the window each user is in. Shuffling these small numbers
    # is faster than shuffling the users, of whom one round's are needed.
    rounds = np.repeat(
      np.arange(last - first, dtype=np.min_scalar_type(window_size)),
      np.diff(starts),
    )
    first_round_num = round_num - place + first
    _generator(self.seed, first_round_num, _SHUFFLE).shuffle(rounds)
    users = users[rounds == place - first].astype(np.int64)
    if self.regroup_clients:
      _generator(self.seed, round_num, _GROUPS).shuffle(users)
    clients = np.array_split(users, self.clients_per_round)
    return [client for client in clients if client.size]


# A new way to take part is one class and one line here.
SAMPLERS: dict[str, type[Sampler]] = {
  "fixed_size": FixedSizeSampler,
  "min_separation": MinSeparationSampler,
  "poisson": PoissonSampler,
}


def create_sampler(
  name: str,
  *,
  num_users: int,
  clients_per_round: int,
  users_per_client: int = 1,
  seed: int = 0,
  min_separation: int | None = None,
  regroup_clients: bool = True,
) -> Sampler:
  """Creates a sampler by name.

  Args:
    name: A key of `SAMPLERS`.
    num_users: Size of the population.
    clients_per_round: Number of virtual clients in a round (expected, where it
      is random).
    users_per_client: Number of users in a virtual client (expected or at most,
      see the sampler).
    seed: Seed of all rounds.
    min_separation: See `MinSeparationSampler`; `None` for other samplers.
    regroup_clients: See `MinSeparationSampler`; true for other samplers.

  Returns:
    The sampler.

  Raises:
    ValueError: If the name is unknown, a number out of its range or an option
      not one of this sampler.
  """
  if name not in SAMPLERS:
    raise ValueError(
      f"participation must be one of {sorted(SAMPLERS)}, found {name!r}."
    )
  sampler = SAMPLERS[name]
  fields = {field.name for field in dataclasses.fields(sampler)}
  options = {}
  for option, value, default in (
    ("min_separation", min_separation, None),
    ("regroup_clients", regroup_clients, True),
  ):
    if option in fields:
      options[option] = value
    elif value != default:
      raise ValueError(
        f"{option} must be left at {default} for {name} participation, which"
        f" does not have it, found {value}."
      )
  return sampler(
    num_users=num_users,
    clients_per_round=clients_per_round,
    users_per_client=users_per_client,
    seed=seed,
    **options,
  )
