"""The base class of participations: who takes part, and what a user can change.

The mechanism of one round clips every virtual client's update to L2 norm C,
sums them and adds Gaussian noise of standard deviation `noise_multiplier * C`
to the sum, which is then divided by a constant (Xu et al. 2023, "Learning to
Generate Image Embeddings with User-level Differential Privacy", section 3).
A virtual client merges `users_per_client` users, so one user may move the sum
by more than C; a participation states by how much.

Users are slots 0 ... N - 1 of a population: a slot is a person's place in it,
whatever the identifier says. All draws of a round are functions of a key, the
round and the slot alone. A run therefore resumes from its round number, and you
can compare the guarantee's neighbours slot by slot. The key must be secret
where sampling is said to amplify privacy: see `create_generator`.

Probabilities, periods and bins are functions of N, and N is published. One user
fewer would change everybody's coins, so "add or remove one user" does not hold.
The relation that holds leaves a user's slot empty: N and all that follows from
it are public and do not change, nor do anybody else's rounds.
"""

import abc
from collections.abc import Iterable, Iterator
import dataclasses
import hashlib
import struct
from typing import Any, ClassVar

import dp_accounting
import numpy as np

from tff_fedemb import checks
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.participation import participation_check


class ClaimError(errors.DataError):
  """A run is not the one that its epsilon assumes."""


KEY_BYTES = 16
MAX_NUM_USERS = 10**12


def create_generator(
  key: int, round_num: int, stream: int
) -> np.random.Generator:
  """Returns the generator of one stream of random numbers of a round.

  The stream is the block function Philox4x64-10, counting, under a key of 128
  bits of its own: BLAKE2b, keyed by the run's key, of the round and the stream.
  The guarantee assumes that without the run's key, which is 128 bits from the
  operating system, nobody can tell these streams from chance, or find one from
  another. BLAKE2b is built for that. Philox is not, but an attacker only sees
  what the noise leaves of its cohorts.

  Args:
    key: Key of all rounds, 0 ... 2**128 - 1.
    round_num: Non-negative number of the round.
    stream: Number of the stream; each stream of a participation has its own.
  """
  digest = hashlib.blake2b(
    struct.pack("<QQ", round_num, stream),
    key=key.to_bytes(KEY_BYTES, "little"),
    digest_size=KEY_BYTES,
  ).digest()
  return np.random.Generator(
    np.random.Philox(key=np.frombuffer(digest, np.dtype("<u8")))
  )


@dataclasses.dataclass(frozen=True)
class Participation(config.Config, abc.ABC):
  """How users take part, and what may be claimed for it.

  Privacy:
    Unit: user.
    Neighbouring relation: `neighboring_relation`.
    Sensitivity: `sensitivity_in_clip_norms` clip norms in a round.
    DpEvent: `sampled_event`; where users are not sampled, that of the mechanism
      for `participations` at least `min_separation` rounds apart.

  `NeighboringRelation.REPLACE_ONE` of `dp_accounting` selects an amplification
  theorem and does not double the sensitivity. `sensitivity_in_clip_norms`
  doubles it, once.

  Attributes:
    name: Name in a ledger and on a command line.
    field_of_bands: Field that sets how far apart a user's rounds are, if that
      has to be as many rounds as a matrix has bands; None without such a field.
    is_for_bands: Whether it is only of use with bands: with independent noise,
      another participation is the same.
    is_servers_choice: Whether a server that draws users has reason to choose
      it.
    regrouped_in_every: Interval at which virtual clients get other users:
      "round" or "pass".
    users_are: Meaning of `users_per_round`: "exact", "most" or "expected".
    drawn_by: Public facts that a secret draw depends on.
    set_by_users: Fields whose defaults depend on the population.
    num_users: Number of users; None until a task has set it (`for_users`).
    users_per_round: Number of users of a round: exact, expected or at most.
    users_per_client: Number of users merged in a virtual client.
  """

  name: ClassVar[str]
  field_of_bands: ClassVar[str | None] = None
  is_for_bands: ClassVar[bool] = False
  is_servers_choice: ClassVar[bool] = False
  regrouped_in_every: ClassVar[str] = "round"
  users_are: ClassVar[str] = "expected"
  drawn_by: ClassVar[str] = "the number of slots and the schedule"
  set_by_users: ClassVar[tuple[str, ...]] = ()

  num_users: int | None = config.field(None, minimum=1, maximum=MAX_NUM_USERS)
  # The default is never valid; dataclasses require one here.
  users_per_round: float = config.field(None, above=0)
  _: dataclasses.KW_ONLY
  users_per_client: int = config.field(1, minimum=1)

  def __post_init__(self):
    super().__post_init__()
    users = self.users_per_round
    if users.is_integer():
      object.__setattr__(self, "users_per_round", int(users))
    if self.num_users is not None:
      self.settle()

  def settle(self) -> None:
    """Fills in and checks the fields that depend on the number of users.

    Raises:
      errors.FieldError: If a field is out of its range for so many users.
    """
    if not self.users_per_client <= self.users_per_round <= self.num_slots:
      raise errors.FieldError(
        "users_per_round",
        f"be at least users_per_client ({self.users_per_client}) and at most"
        f" num_users ({self.num_users})",
        self.users_per_round,
      )

  @property
  def num_slots(self) -> int:
    """The number of users.

    Raises:
      errors.FieldError: If it is not known yet.
    """
    return checks.check_given("num_users", self.num_users)

  def for_users(self, num_users: int) -> "Participation":
    """Returns the same for the users of a task.

    Args:
      num_users: Number of users of the task.

    Raises:
      errors.FieldError: If it is no number, or this is for another one.
    """
    checks.check_integer("num_users", num_users, minimum=1)
    if self.num_users not in (None, num_users):
      raise errors.FieldError(
        "num_users", f"be that of the task, {num_users:,}", self.num_users
      )
    return dataclasses.replace(self, num_users=num_users)

  @property
  @abc.abstractmethod
  def accountants(self) -> tuple[str, ...]:
    """Names of the accountants with a valid epsilon, cheapest first."""

  @property
  def further_accountants(self) -> tuple[str, ...]:
    """Names of other valid accountants, which run only if you name them."""
    return ()

  @property
  @abc.abstractmethod
  def neighboring_relation(self) -> dp_accounting.NeighboringRelation:
    """Relation between the two populations that must look alike."""

  @property
  def is_sampled(self) -> bool:
    """Whether users are drawn in secret, which amplifies privacy."""
    return False

  @property
  def is_amplified(self) -> bool:
    """Whether the secret draw lowers epsilon: one of all users does not.

    It needs the number of users.
    """
    return self.is_sampled and self.sampling_probability < 1

  @property
  def is_drawn_once(self) -> bool:
    """Whether users are drawn once for the whole run, not for every round.

    A user's rounds then depend on each other, and the run is one event.
    """
    return False

  @property
  def clients_per_round(self) -> int:
    """Number of virtual clients of a round."""
    return max(round(self.users_per_round / self.users_per_client), 1)

  @property
  def sampling_probability(self) -> float:
    """Probability that a given user takes part in a given round."""
    return self.users_per_round / self.num_slots

  @property
  def min_separation(self) -> int | None:
    """Rounds from one participation to the next; None without a bound."""
    return None

  @property
  def max_participations(self) -> int | None:
    """Rounds that a user takes part in at most; None without a bound."""
    return None

  def participations(self, rounds: int) -> int:
    """Returns the largest number of the first rounds that a user is in.

    Args:
      rounds: Number of rounds, at least 0.
    """
    possible = -(-rounds // (self.min_separation or 1))
    return min(possible, self.max_participations or possible)

  def check_rounds(self, rounds: int) -> None:
    """Checks that the bounds can hold for so many rounds.

    Args:
      rounds: Number of rounds of the run, at least 1.

    Raises:
      errors.FieldError: If `sample` would exceed a bound.
    """
    del rounds  # By default, nothing is bounded.

  def for_rounds(self, rounds: int | None) -> "Participation":
    """Returns the same with the bounds that a number of rounds implies.

    Args:
      rounds: Number of rounds of the run; None if it is not known.
    """
    del rounds  # A user who is drawn anew may be drawn every time.
    return self

  def for_bands(self, num_bands: int) -> "Participation":
    """Returns the same, with users as far apart as bands need, if it can be.

    Args:
      num_bands: Bands of a banded matrix, at least 1.
    """
    if self.field_of_bands is None:
      return self
    changes: dict[str, Any] = {self.field_of_bands: num_bands}
    return dataclasses.replace(self, **changes)

  def resized(
    self, *, num_users: int, users_per_round: float
  ) -> "Participation":
    """Returns the same for another population and cohort.

    Args:
      num_users: Size of the population.
      users_per_round: Number of users of a round.
    """
    changes: dict[str, Any] = dict.fromkeys(self.set_by_users)
    changes |= {"num_users": num_users, "users_per_round": users_per_round}
    return dataclasses.replace(self, **changes)

  @property
  def sensitivity_in_clip_norms(self) -> float:
    """Largest L2 change of a round's sum for one user, in clip norms."""
    return 1.0 if self.users_per_client == 1 else 2.0

  @property
  def neighboring_relation_in_words(self) -> str:
    """The difference of the two populations, and what they have in common."""
    # A known schedule needs no further public facts.
    public = self.drawn_by if self.is_sampled else Participation.drawn_by
    return f"a user's slot stays empty; {public} are public"

  @property
  def breaks_if(self) -> str:
    """The likeliest way to void the guarantee: a sentence of 80 characters."""
    return (
      "It breaks if a user is in more rounds than these, or in closer ones."
    )

  @property
  @abc.abstractmethod
  def users_in_words(self) -> str:
    """How the users of a round are chosen: a sentence without its end."""

  @property
  def cohort_in_words(self) -> str:
    """Number of users of a round, for example 'an expected 64'."""
    users = checks.count_in_words(self.users_per_round)
    return f"an expected {users}" if self.users_are == "expected" else users

  @property
  def sampling(self) -> str:
    """How users are chosen and grouped, in words."""
    words = self.users_in_words
    if self.users_are == "expected":
      words += f", {checks.count_in_words(self.users_per_round)} expected"
    if self.users_per_client == 1:
      return f"{words}; each user is a client of their own"
    return (
      f"{words}; {self.users_per_client} users per virtual client, regrouped in"
      f" every {self.regrouped_in_every}"
    )

  def sampled_event(
    self, event: dp_accounting.DpEvent
  ) -> dp_accounting.DpEvent:
    """Returns the event of a round whose users are drawn.

    Args:
      event: Event of the release of these users.

    Raises:
      NotImplementedError: If users are not drawn.
    """
    raise NotImplementedError(f"{self.name} participation has no such event.")

  def sampled_events(
    self, event: dp_accounting.DpEvent, count: int, *, rounds: int
  ) -> list[tuple[dp_accounting.DpEvent, int]]:
    """Returns the events of a user's rounds, and their numbers.

    Args:
      event: Event of each round that the user is in.
      count: Number of rounds that the user may be in.
      rounds: Number of all rounds of the run.
    """
    del rounds  # Each round is drawn by itself.
    return [(self.sampled_event(event), count)]

  def select_accountants(
    self, names: Iterable[str] | None = None
  ) -> tuple[str, ...]:
    """Returns the named accountants, cheapest first.

    Args:
      names: Names of accountants; None for `accountants`.

    Raises:
      errors.FieldError: If there is no name, or an accountant does not give a
        valid epsilon.
    """
    if names is None:
      return self.accountants
    valid = (*self.accountants, *self.further_accountants)
    if not names or set(names) - set(valid):
      raise errors.FieldError(
        "accountants",
        f"be among {valid} for {self.name} participation",
        tuple(names),
      )
    return tuple(name for name in valid if name in names)

  @property
  def amplification(self) -> str:
    """Whether sampling amplifies privacy, and why, in words."""
    return "none: users are not sampled"

  def with_known_schedule(
    self, max_participations: int | None = None
  ) -> "Participation":
    """Returns the same for a run in which anyone may know who takes part when.

    Args:
      max_participations: Most rounds of a user in the schedule, which is drawn
        from no data; None if it is not known.
    """
    del max_participations  # Nothing is claimed that rests on a secret.
    return self

  def with_secret_schedule(self) -> "Participation":
    """Returns the same for a run in which nobody knows who takes part when."""
    return self

  @abc.abstractmethod
  def sample(self, round_num: int, *, key: int) -> list[np.ndarray]:
    """Draws the virtual clients of a round.

    Args:
      round_num: Non-negative number of the round.
      key: Key of all rounds, as in `create_generator`.

    Returns:
      One int64 array of slots per virtual client, none of them empty. A slot
      is in at most one of them.
    """

  def check_trace(
    self,
    observed: participation_check.ObservedParticipation,
    *,
    rounds: int,
  ) -> None:
    """Refuses a claim that the trace of a run contradicts.

    It checks what a trace can tell for certain: population, rounds, sizes,
    separation and number of participations. To find out whether users were
    drawn at random, repeat the draw with the key (`report.account.recompute`).

    Args:
      observed: Finding in the trace of the first rounds.
      rounds: Number of rounds that are accounted for.

    Raises:
      ClaimError: If it does; says what was assumed and what was run.
    """
    if observed.num_rounds != rounds:
      raise ClaimError(
        f"the trace must hold the {rounds:,} rounds that are accounted for,"
        f" found {observed.num_rounds:,}."
      )
    if observed.num_users != self.num_users:
      raise ClaimError(
        f"the trace must be of {self.num_users:,} users, as the accounting"
        f" assumes, found one of {observed.num_users:,}."
      )
    for assumed, found in self.contradictions(observed) if rounds else ():
      raise ClaimError(
        f"{self.name} participation was assumed, in which {assumed}; in the"
        f" trace {found}."
      )

  def contradictions(
    self, observed: participation_check.ObservedParticipation
  ) -> Iterator[tuple[str, str]]:
    """Yields pairs of an assumption and what a trace shows instead.

    Args:
      observed: Finding in the trace of at least one round.
    """
    # Several users in a virtual client cost more than users on their own.
    if self.users_per_client == 1 and not observed.users_alone:
      several = "some virtual clients have several"
      yield "every virtual client has one user", several
    rounds, most = observed.num_rounds, self.clients_per_round
    if self.users_per_client > 1 and observed.max_clients_per_round > most:
      yield (
        f"a round has at most {most:,} virtual clients",
        f"a round has {observed.max_clients_per_round:,}",
      )
    most = self.participations(rounds)
    if observed.max_participations > most:
      yield (
        f"a user is in at most {most:,} of {rounds:,} rounds",
        f"user {observed.most_frequent_user:,} is in"
        f" {observed.max_participations:,}",
      )
    apart = self.min_separation or 1
    if observed.closest_pair:
      user, earlier, later = observed.closest_pair
      if later - earlier < apart:
        yield (
          f"a user's rounds are at least {apart:,} apart",
          f"user {user:,} is in rounds {earlier:,} and {later:,}",
        )
    largest: float = self.num_slots
    if self.users_are != "expected":
      largest = self.users_per_round
    fewest = largest if self.users_are == "exact" else 0
    low, high = observed.min_users_per_round, observed.max_users_per_round
    if low < fewest or high > largest:
      yield (
        f"a round has {checks.count_in_words(fewest)} to"
        f" {checks.count_in_words(largest)} users",
        f"rounds have {low:,} to {high:,}",
      )
