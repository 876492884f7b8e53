"""Made-up users, for data that come without: a Dirichlet partition.

Every user draws how much they have of each class (Hsu et al. 2019, "Measuring
the Effects of Non-Identical Data Distribution for Federated Visual
Classification").
"""

import numpy as np

from tff_fedemb import checks
from tff_fedemb.data import arrays


def partition_by_dirichlet(
  labels: np.ndarray,
  *,
  num_users: int,
  alpha: float = 0.1,
  seed: int = 0,
) -> np.ndarray:
  """Divides examples among made-up users, each with classes of their own.

  A user draws shares of the classes from a Dirichlet distribution around those
  of the data, and then examples by these shares, without replacement. Where a
  class has no example left, its share goes to the others. The numbers of
  examples of two users differ by at most one.

  Privacy:
    Nobody is protected: a made-up user is no person. The epsilon of such a run
    is that of a simulation, so say it in `ArrayTask(user_meaning=...)`.

  Args:
    labels: Class of each example, integers or strings `[n]`.
    num_users: Number of users, from 1 to n.
    alpha: Concentration, in [1e-3, 1e6]: users have nearly one class each where
      it is small, and are alike where it is large.
    seed: Seed of the draws, at least 0.

  Returns:
    The user of each example, int64 `[n]`, in 0 ... num_users - 1.

  Raises:
    errors.FieldError: If an argument is out of its range.

  Examples:
    >>> labels = np.arange(1000) % 10
    >>> users = fe.partition_by_dirichlet(labels, num_users=50)
    >>> np.bincount(users)[:4].tolist()
    [20, 20, 20, 20]
    >>> len(np.unique(labels[users == 7])) < 5
    True
  """
  num_examples = np.size(labels)
  checks.check_integer("num_users", num_users, minimum=1, maximum=num_examples)
  labels = arrays.to_labels_or_texts("labels", labels, num_examples)
  # Beyond this range, NumPy's draws are not of this distribution.
  checks.check_number("alpha", alpha, minimum=1e-3, maximum=1e6)
  checks.check_integer("seed", seed, minimum=0)
  generator = np.random.default_rng(seed)
  _, codes, left = np.unique(labels, return_inverse=True, return_counts=True)
  # The rows of a class are given away from its end, in a random order.
  rows = []
  for code in range(len(left)):
    rows.append(generator.permutation(np.flatnonzero(codes == code)))
  concentrations = alpha * left / num_examples
  users = np.empty(num_examples, np.int64)
  for user, size in enumerate(_sizes(num_examples, num_users)):
    shares = generator.dirichlet(concentrations)
    taken = _draw(generator, shares, left, size)
    for label in np.flatnonzero(taken):
      end = left[label]
      users[rows[label][end - taken[label] : end]] = user
    left = left - taken
  return users


def _sizes(num_examples: int, num_users: int) -> np.ndarray:
  """Numbers of examples of the users, `[num_users]`, which differ by 1."""
  ends = np.arange(num_users + 1) * num_examples // num_users
  return np.diff(ends)


def _draw(
  generator: np.random.Generator,
  shares: np.ndarray,
  left: np.ndarray,
  size: int,
) -> np.ndarray:
  """Draws how many examples of each class a user gets, `[classes]`.

  Args:
    generator: Source of the draws.
    shares: The user's shares of the classes, `[classes]`.
    left: Examples that are left of each class; at least `size` in all.
    size: Number of the user's examples.
  """
  taken = np.zeros_like(left)
  while size > taken.sum():
    possible = np.where(taken < left, shares, 0.0)
    if not possible.any():
      # The classes that the user has a share of are used up.
      possible = (left - taken).astype(float)
    drawn = generator.multinomial(size - taken.sum(), possible / possible.sum())
    taken = np.minimum(taken + drawn, left)
  return taken
