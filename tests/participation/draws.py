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


def places_in_passes(claim, num_passes):
  """Draws passes of ten rounds in which 1,000 users are once each.

  Cohorts must be binomial, not equal: their sizes are within five deviations
  of sqrt(90).

  Returns:
    The round of each user in each pass, `[num_passes, 1_000]`.
  """
  places = []
  rounds = [users(clients) for clients in draw(claim, 10 * num_passes)]
  for first in range(0, len(rounds), 10):
    slots = rounds[first : first + 10]
    sizes = np.array(list(map(len, slots)))
    order = np.argsort(np.concatenate(slots))
    assert np.concatenate(slots)[order].tolist() == list(range(1_000))
    assert np.unique(sizes).size > 1
    assert np.all(np.abs(sizes - 100) < 48)
    places.append(np.repeat(np.arange(10), sizes)[order])
  return np.array(places)
