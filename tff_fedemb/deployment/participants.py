"""Who took part in the rounds of a simulation."""

import numpy as np

from tff_fedemb.deployment import devices as devices_lib

# Beside what is drawn of devices.
_TABLE = 101


class Participants:
  """Who took part, how often and when last.

  A hash table with linear probing: the time of a round does not grow with those
  who took part before, as it would in sorted arrays.
  """

  def __init__(self):
    self.size = 0
    self._allocate(1 << 12)

  def _allocate(self, capacity: int) -> None:
    self.slots = np.full(capacity, -1, np.int64)
    self.counts = np.zeros(capacity, np.int32)
    self.last_rounds = np.zeros(capacity, np.int32)
    self.last_hours = np.zeros(capacity, np.float64)

  def find(self, slots: np.ndarray) -> np.ndarray:
    """Places in the arrays, where new ones are free; of distinct slots."""
    mask = self.slots.size - 1
    hashes = devices_lib.draw_bits(slots, _TABLE, seed=0)
    places = (hashes & np.uint64(mask)).astype(np.int64)
    looking = np.arange(slots.size)
    while looking.size:
      there = self.slots[places[looking]]
      looking = looking[(there != slots[looking]) & (there >= 0)]
      places[looking] = (places[looking] + 1) & mask
    return places

  def add(self, slots: np.ndarray, round_num: int, hours: float) -> None:
    """Records that distinct slots took part."""
    if 2 * (self.size + slots.size) > self.slots.size:
      self._grow(self.size + slots.size)
    places = self._insert(slots)
    self.counts[places] += 1
    self.last_rounds[places] = round_num
    self.last_hours[places] = hours

  def _insert(self, slots: np.ndarray) -> np.ndarray:
    places = np.zeros(slots.size, np.int64)
    left = np.arange(slots.size)
    while left.size:
      places[left] = self.find(slots[left])
      is_new = self.slots[places[left]] < 0
      # Of several that want the same place, one gets it.
      self.slots[places[left]] = slots[left]
      has_place = self.slots[places[left]] == slots[left]
      self.size += np.unique(places[left][is_new & has_place]).size
      left = left[~has_place]
    return places

  def _grow(self, size: int) -> None:
    old = self.slots, self.counts, self.last_rounds, self.last_hours
    used = old[0] >= 0
    self._allocate(1 << (4 * size).bit_length())
    self.size = 0
    places = self._insert(old[0][used])
    self.counts[places] = old[1][used]
    self.last_rounds[places] = old[2][used]
    self.last_hours[places] = old[3][used]
