"""Rounds as participations draw them, and as nobody should, for tests."""

import numpy as np


def draw(claim, rounds, key=5):
  """The virtual clients of each of the first rounds."""
  return [claim.sample(number, key=key) for number in range(rounds)]


def users(clients):
  """The slots of a round."""
  return np.concatenate([np.empty(0, np.int64), *clients])


def alone(slots):
  """Each user as a virtual client."""
  return list(np.asarray(slots)[:, np.newaxis])


def passes(num_users, size, rounds, *, blocks=1, leaves_out=False):
  """Users in turn within their block, so that nobody comes back early.

  Args:
    num_users: All of them.
    size: Users of a round.
    rounds: How many.
    blocks: Blocks of users, of which each has a round in turn.
    leaves_out: Whether every second or third round has one or two users fewer.
  """
  order = np.random.default_rng(1).permutation(num_users)
  order = order[: num_users // (blocks * size) * blocks * size]
  order = order.reshape(blocks, -1, size)
  return [
    alone(order[n % blocks, n // blocks % order.shape[1]])[n % 3 * leaves_out :]
    for n in range(rounds)
  ]


def always(rounds, user, which):
  """The same rounds, some of them with a user in the place of another one."""
  changed = []
  for number, clients in enumerate(rounds):
    slots = np.setdiff1d(users(clients), [user])
    if which(number):
      slots = np.append(slots[: users(clients).size - 1], user)
    changed.append(alone(slots))
  return changed
