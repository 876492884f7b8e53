"""Who took part in the rounds of a simulation."""

import numpy as np


class Participants:
  """Who took part, how often and when last.

  Attributes:
    counts: Participations of each participant, int32.
    last_rounds: Number of the last round of each, int32.
    last_hours: When that ended, float64.
  """

  def __init__(self):
    # Place of each slot in the arrays, in the order of the first participation.
    self._places: dict[int, int] = {}
    self.counts = np.zeros(1 << 12, np.int32)
    self.last_rounds = np.zeros(1 << 12, np.int32)
    self.last_hours = np.zeros(1 << 12, np.float64)

  @property
  def slots(self) -> np.ndarray:
    """Those who took part, int64."""
    return np.fromiter(self._places, np.int64, len(self._places))

  def find(self, slots: np.ndarray) -> np.ndarray:
    """Places in the arrays, -1 for whoever has not taken part."""
    places = (self._places.get(slot, -1) for slot in slots.tolist())
    return np.fromiter(places, np.int64, slots.size)

  def add(self, slots: np.ndarray, round_num: int, hours: float) -> None:
    """Records that distinct slots took part."""
    for slot in slots.tolist():
      self._places.setdefault(slot, len(self._places))
    while self.counts.size < len(self._places):
      for name in ("counts", "last_rounds", "last_hours"):
        old = getattr(self, name)
        setattr(self, name, np.concatenate([old, np.zeros_like(old)]))
    places = self.find(slots)
    self.counts[places] += 1
    self.last_rounds[places] = round_num
    self.last_hours[places] = hours
