"""The server's checks of a client's delta that comes from outside.

A phone may be broken, late or hostile. What it sends is a file of numbers
(`tensor_files`); nothing of it reaches the sum before it has the shapes, the
types, the run and the round that it should have, is finite, and comes from a
device that was asked and has sent nothing yet. One that is longer than the clip
norm is clipped. The aggregator then clips once more, which changes nothing but
rounding.
"""

import collections
from collections.abc import Collection, Mapping
import math

import numpy as np

from tff_fedemb.phones import tensor_files

# Keys of a file's words.
SPEC = "spec_sha256"
ROUND = "round"

TOO_LONG = "too long"
# How far rounding may take a clipped delta beyond the clip norm.
_ROUNDING = 1e-5
# For a header with some spaces.
_SPARE_BYTES = 1 << 16


class Inbox:
  """The deltas of one round.

  Privacy:
    Unit: one device's delta.
    Neighbouring relation: zero-out of one delta.
    Sensitivity: `clip_norm`, whatever a device sends: a device counts once, and
      one that is refused sends nothing.
    DpEvent: the aggregator's.

  Attributes:
    counts: Deltas by what became of them: "accepted", `TOO_LONG` of those that
      were accepted after clipping, and the reasons of those that were refused.
  """

  def __init__(
    self,
    shapes: Mapping[str, tuple[int, ...]],
    *,
    clip_norm: float,
    spec_digest: str,
    round_num: int,
    devices: Collection[str],
  ):
    """Opens the inbox.

    Args:
      shapes: Shapes of the tensors of a delta, by name.
      clip_norm: L2 norm that a delta may have, all tensors together.
      spec_digest: Digest of the run's spec.
      round_num: The round.
      devices: Devices that were asked. They must be known for certain, by
        attestation and an authenticated connection.
    """
    self._shapes = dict(shapes)
    self._clip_norm = clip_norm
    self._words = {SPEC: spec_digest, ROUND: str(round_num)}
    self._waiting = set(devices)
    self._devices = frozenset(devices)
    numbers = sum(map(math.prod, self._shapes.values()))
    self._max_bytes = 4 * numbers + _SPARE_BYTES
    self.counts: collections.Counter[str] = collections.Counter()

  def receive(self, device: str, message: bytes) -> list[np.ndarray]:
    """Checks a delta.

    Args:
      device: The sender.
      message: Content of the message.

    Returns:
      The delta, clipped, in the order of `shapes`.

    Raises:
      ValueError: If it is refused, with the reason.
    """
    try:
      delta = self._check(device, message)
    except ValueError as error:
      self.counts[str(error)] += 1
      raise
    self._waiting.remove(device)
    self.counts["accepted"] += 1
    # Squares of float32 do not overflow here.
    norm = math.sqrt(
      sum(float(np.sum(np.square(part, dtype=np.float64))) for part in delta)
    )
    if norm <= self._clip_norm * (1 + _ROUNDING):
      return delta
    self.counts[TOO_LONG] += 1
    factor = self._clip_norm / norm
    return [
      (part.astype(np.float64) * factor).astype(np.float32) for part in delta
    ]

  def _check(self, device: str, message: bytes) -> list[np.ndarray]:
    if device not in self._devices:
      raise ValueError("a device that was not asked")
    if device not in self._waiting:
      raise ValueError("a device that has sent already")
    if len(message) > self._max_bytes:
      raise ValueError("too many bytes")
    tensors, words = tensor_files.unpack(message)
    for key, meaning in ((SPEC, "another run"), (ROUND, "another round")):
      if words.get(key) != self._words[key]:
        raise ValueError(meaning)
    if tensors.keys() != self._shapes.keys():
      raise ValueError("other tensors")
    delta = [tensors[name] for name in self._shapes]
    if any(part.dtype != np.float32 for part in delta):
      raise ValueError("another type")
    if [part.shape for part in delta] != list(
      map(tuple, self._shapes.values())
    ):
      raise ValueError("another shape")
    if not all(np.isfinite(part).all() for part in delta):
      raise ValueError("not finite")
    return delta
