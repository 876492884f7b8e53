"""Rounds as participations draw them, for tests."""

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
