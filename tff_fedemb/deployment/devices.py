"""The laws of devices: when they are available, how fast they are, when lost.

The behaviour of a device is a function of the seed and its slot, and of the
hour or the round if it changes. Nothing is stored, so a population of any size
takes no memory. The random numbers are SplitMix64's of a counter (Steele et al.
2014, "Fast Splittable Pseudorandom Number Generators"): no privacy rests on
them.
"""

import functools
import math
from typing import Any

import numpy as np
from scipy import special

from tff_fedemb.deployment import deployment as deployment_lib

# Counters, so that each property has random numbers of its own.
_ZONE, _HABIT, _LEVEL, _PRESENCE, _SPEED = range(5)
_DOWNLOAD, _UPLOAD, _EXAMPLES, _DROPOUT, _SESSION = range(5, 10)
# The sine's peak is this many hours after its zero.
_HOURS_TO_TOP = 6.0
# A device's presence is drawn anew at least this often.
_LONGEST_PRESENCE_HOURS = 1.0
# Classes of equal size by speed, slowest first.
CLASSES = ("slow", "middle", "fast")

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _mix(values: Any) -> Any:
  """Applies SplitMix64's finalizer to uint64 values, in place; returns them."""
  values ^= values >> np.uint64(30)
  values *= np.uint64(0xBF58476D1CE4E5B9)
  values ^= values >> np.uint64(27)
  values *= np.uint64(0x94D049BB133111EB)
  values ^= values >> np.uint64(31)
  return values


@functools.lru_cache(maxsize=1 << 10)
def _start_of_stream(seed: int, counters: tuple[int, ...]) -> np.ndarray:
  """Returns the first state of a stream, uint64 `[1]`; do not change it.

  Streams differ by the seed and the counters, and by how many there are.
  """
  start = np.array([seed & _MASK], np.uint64)
  for counter in (0, *counters):
    step = np.uint64((counter + 1) * _GOLDEN & _MASK)
    start = _mix(start + step)
  return start


def draw_bits(slots: np.ndarray, *counters: int, seed: int) -> np.ndarray:
  """Returns 64 random bits for each slot.

  Args:
    slots: Integers of at least 0, of any shape.
    *counters: Integers of at least 0; other counters give other bits.
    seed: Seed of all bits.

  Returns:
    uint64, of the shape of the slots.
  """
  bits = slots.astype(np.uint64)
  bits *= np.uint64(_GOLDEN)
  bits += _start_of_stream(seed, counters)
  return _mix(bits)


class Devices:
  """The devices of a population, one for each slot.

  All methods take int64 slots, `[n]`, and return `[n]`. They are functions of
  slot and seed: a second call returns the same.

  Attributes:
    config: The laws of the devices.
  """

  def __init__(self, config: deployment_lib.Deployment, seed: int):
    """Initialises the devices.

    Args:
      config: Laws of the devices.
      seed: Seed of all draws, at least 0.
    """
    self.config = config
    self._seed = seed
    zones = config.availability.time_zones
    self._zones = np.array(list(zones), float)
    weights = np.cumsum(list(zones.values()))
    self._zone_ends = weights / weights[-1]

  def _uniform(self, slots: np.ndarray, *counters: int) -> np.ndarray:
    """Uniform numbers in (0, 1), float64 `[n]`."""
    bits = draw_bits(slots, *counters, seed=self._seed)
    return ((bits >> np.uint64(11)) + 0.5) * 2.0**-53

  def _lognormal(
    self,
    slots: np.ndarray,
    median: float,
    sigma: float,
    *counters: int,
  ) -> np.ndarray:
    """Lognormal numbers; sigma is the standard deviation of their logarithm."""
    normal = special.ndtri(self._uniform(slots, *counters))
    return median * np.exp(sigma * normal)

  def time_zone(self, slots: np.ndarray) -> np.ndarray:
    """Returns the hours that a device's clock is ahead of UTC.

    Args:
      slots: Slots of the devices.

    Returns:
      Hours in [-12, 14], drawn by the weights of `Availability.time_zones`.
    """
    drawn = self._uniform(slots, _ZONE)
    return self._zones[np.searchsorted(self._zone_ends, drawn)]

  def level(self, slots: np.ndarray) -> np.ndarray:
    """Returns the level of a device's availability, q in FLGo.

    Args:
      slots: Slots of the devices.

    Returns:
      Positive factors, lognormal over the devices.
    """
    law = self.config.availability
    return self._lognormal(slots, law.level_median, law.level_sigma, _LEVEL)

  def habit_hours(self, slots: np.ndarray) -> np.ndarray:
    """Returns the hours by which a user's own day is ahead of the time zone.

    Args:
      slots: Slots of the devices.

    Returns:
      Hours, normally distributed around 0; negative if the user's day is
      behind.
    """
    sigma = self.config.availability.habit_sigma_hours
    return sigma * special.ndtri(self._uniform(slots, _HABIT))

  def availability(self, slots: np.ndarray, hours: float) -> np.ndarray:
    """Computes the probability that a device is available.

    Args:
      slots: Slots of the devices.
      hours: Hours since a midnight in UTC.

    Returns:
      Probabilities in [0, 1], see `deployment.Availability`.
    """
    law = self.config.availability
    own_hours = hours + self.time_zone(slots) - law.peak_hour + _HOURS_TO_TOP
    own_hours += self.habit_hours(slots)
    wave = law.amplitude * np.sin(2 * math.pi / 24 * own_hours) + law.base
    return np.clip(self.level(slots) * wave, 0.0, 1.0)

  def is_there(self, slots: np.ndarray, hours: float) -> np.ndarray:
    """Draws whether a device is available.

    Presence is drawn anew after every mean length of a session, but at least
    once an hour. A device that was there a minute ago is therefore mostly still
    there.

    Args:
      slots: Slots of the devices.
      hours: Hours since a midnight in UTC.

    Returns:
      Bool; the share that is true follows `availability`.
    """
    session = self.config.availability.session_minutes / 60
    stretch = int(hours / min(session, _LONGEST_PRESENCE_HOURS))
    drawn = self._uniform(slots, _PRESENCE, stretch)
    return drawn < self.availability(slots, hours)

  def session_seconds(self, slots: np.ndarray, attempt: int) -> np.ndarray:
    """Draws the time for which a selected device stays.

    Args:
      slots: Slots of the devices.
      attempt: Number of the round, abandoned ones counted.

    Returns:
      Seconds, exponential; infinity if devices never leave.
    """
    mean = 60 * self.config.availability.session_minutes
    return -mean * np.log(self._uniform(slots, _SESSION, attempt))

  def drops_out(self, slots: np.ndarray, attempt: int) -> np.ndarray:
    """Draws whether a selected device fails before it trains.

    Args:
      slots: Slots of the devices.
      attempt: Number of the round, abandoned ones counted.

    Returns:
      Bool; true with probability `Deployment.dropout_rate`.
    """
    drawn = self._uniform(slots, _DROPOUT, attempt)
    return drawn < self.config.dropout_rate

  def milliseconds_per_example(self, slots: np.ndarray) -> np.ndarray:
    """Returns the time of a forward pass of one example.

    Args:
      slots: Slots of the devices.

    Returns:
      Milliseconds, lognormal over the devices.
    """
    law = self.config.compute
    return self._lognormal(
      slots, law.milliseconds_per_example, law.sigma, _SPEED
    )

  def device_class(self, slots: np.ndarray) -> np.ndarray:
    """Returns the index in `CLASSES`, by compute speed.

    Args:
      slots: Slots of the devices.

    Returns:
      int64; each class has about a third of the devices.
    """
    slowness = self._uniform(slots, _SPEED)
    return np.floor((1 - slowness) * len(CLASSES)).astype(np.int64)

  def examples(self, slots: np.ndarray, examples: float) -> np.ndarray:
    """Returns the number of examples that a device trains on.

    Args:
      slots: Slots of the devices.
      examples: Median of the devices' numbers of examples; with equal work,
        the number of each device.

    Returns:
      Float64 numbers, not rounded.
    """
    sigma = self.config.compute.examples_sigma
    return self._lognormal(slots, examples, sigma, _EXAMPLES)

  def download_mbps(self, slots: np.ndarray) -> np.ndarray:
    """Returns the bandwidth to the device.

    Args:
      slots: Slots of the devices.

    Returns:
      Mbit/s, lognormal over the devices; infinity takes no time.
    """
    law = self.config.network
    return self._lognormal(
      slots, law.download_mbps, law.download_sigma, _DOWNLOAD
    )

  def upload_mbps(self, slots: np.ndarray) -> np.ndarray:
    """Returns the bandwidth from the device.

    Args:
      slots: Slots of the devices.

    Returns:
      Mbit/s, lognormal over the devices; infinity takes no time.
    """
    law = self.config.network
    return self._lognormal(slots, law.upload_mbps, law.upload_sigma, _UPLOAD)
