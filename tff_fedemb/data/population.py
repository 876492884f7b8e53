"""The users of a task, and the identifiers of virtual clients.

A virtual client's identifier names the users it merges, so a learning process
can build the client's data set from the identifier alone and the program sends
identifiers, never data.
"""

from collections.abc import Callable, Sequence
import hashlib

import numpy as np

from tff_fedemb import checks
from tff_fedemb import errors

# Separates the users in a virtual client's identifier.
SEPARATOR = "\n"

# Characters that would let an identifier break out of the query or of the
# virtual client that it becomes part of.
_FORBIDDEN = (SEPARATOR, "'", "\0")
# Largest number of identifiers that a digest reads.
_DIGESTED = 10_000


class Population:
  """The users 0 ... N - 1 of a task and their identifiers.

  A population of millions is a number and a function: it stores identifiers
  only if it is given them. A user's number is called their slot.

  Examples:
    >>> users = population.Population.from_ids(["ann", "bob", "eve"])
    >>> users.client_id(np.array([2, 0])).split(population.SEPARATOR)
    ['eve', 'ann']
  """

  def __init__(self, size: int, user_id_fn: Callable[[int], str] | None = None):
    """Initialises the population.

    Args:
      size: Number of users, positive.
      user_id_fn: Identifier of a slot, in [0, size); None for the slot's
        decimal number.

    Raises:
      errors.FieldError: If the size is not a positive integer.
    """
    self._size = checks.check_integer("num_users", size, minimum=1)
    self._user_id_fn = user_id_fn or str

  @classmethod
  def from_ids(cls, user_ids: Sequence[str]) -> "Population":
    """Creates a population of identifiers.

    Args:
      user_ids: Identifier of each user, in the order of their slots.

    Returns:
      A population that holds a copy of the identifiers.

    Raises:
      DataError: If one is empty, repeated, not UTF-8, or has line breaks,
        quotes or NULs.
      errors.FieldError: If there are none.
    """
    ids = list(user_ids)
    if len(set(ids)) != len(ids):
      raise errors.DataError("user_ids must be distinct, found repeated ones.")
    for user_id in ids:
      if not user_id or any(c in user_id for c in _FORBIDDEN):
        raise errors.DataError(
          "user_ids must be non-empty without line breaks, quotes and NULs,"
          f" found {user_id!r}."
        )
      if user_id.encode("utf-8", "ignore").decode() != user_id:
        # A file name of another encoding is one.
        raise errors.DataError(f"user_ids must be UTF-8, found {user_id!r}.")
    return cls(len(ids), ids.__getitem__)

  def leave_out(self, number: int) -> tuple["Population", list[str]]:
    """Draws users and leaves them out; every call draws the same ones.

    Args:
      number: Number of users to draw, less than all.

    Returns:
      The population of the others, in their order, and the identifiers drawn.
    """
    generator = np.random.default_rng(0)
    drawn = generator.choice(len(self), number, replace=False, shuffle=False)
    drawn.sort()
    # Number of remaining users before each drawn one.
    before = drawn - np.arange(number)

    def user_id(slot: int) -> str:
      num_skipped = int(np.searchsorted(before, slot, "right"))
      return self.user_id(slot + num_skipped)

    left_out = list(map(self.user_id, drawn.tolist()))
    return Population(len(self) - number, user_id), left_out

  def __len__(self) -> int:
    """Number of users, N."""
    return self._size

  @property
  def digest(self) -> str:
    """SHA-256, in hexadecimal digits, of up to 10,000 of the identifiers.

    It tells populations apart; the size is part of it.
    """
    step = -(-self._size // _DIGESTED)  # Rounded up.
    some = range(0, self._size, step)
    text = SEPARATOR.join(map(self.user_id, some))
    return hashlib.sha256(f"{self._size}\n{text}".encode()).hexdigest()

  def user_id(self, slot: int) -> str:
    """Identifier of the user in a slot.

    Args:
      slot: Place of the user, in [0, N).

    Returns:
      The identifier, without `SEPARATOR`.
    """
    return self._user_id_fn(int(slot))

  def client_id(self, slots: np.ndarray) -> str:
    """Identifier of a virtual client: those of its users, one per line.

    Args:
      slots: Slots of the users that it merges, int `[k]`, in their order.
    """
    return SEPARATOR.join(map(self.user_id, slots))

  def client_ids(self, clients: Sequence[np.ndarray]) -> list[str]:
    """Identifiers of several virtual clients.

    Args:
      clients: Slots of the users of each client, int `[k]`.

    Returns:
      An identifier for each, see `client_id`.
    """
    return list(map(self.client_id, clients))


def user_ids_of(client_id: str) -> list[str]:
  """Identifiers of the users that a virtual client merges.

  Args:
    client_id: The result of `Population.client_id`.
  """
  return client_id.split(SEPARATOR)
