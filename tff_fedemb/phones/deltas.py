"""The server's checks of a client's delta that comes from outside.

A phone may be broken, late or hostile. It sends a file of numbers
(`tensor_files`). A delta reaches the sum only if its shapes, types, run and
round are right, if it is finite, and if it comes from a device that was asked
and has sent nothing yet. A delta that is longer than the clip norm is clipped.
The aggregator then clips once more, which changes nothing but rounding.
"""

import collections
from collections.abc import Collection, Mapping, Sequence
import math

import numpy as np

from tff_fedemb.phones import tensor_files

# Keys of a file's texts.
SPEC = "spec_sha256"
ROUND = "round"

TOO_LONG = "too long"
# How far rounding may take a clipped delta beyond the clip norm.
_ROUNDING = 1e-5
# Room for the header of a file.
_SPARE_BYTES = 1 << 16


class Inbox:
  """The deltas of one round.

  Privacy:
    Unit: one device's delta.
    Neighbouring relation: zero-out of one delta.
    Sensitivity: `clip_norm`, whatever a device sends: a device counts once, and
      not at all if it is refused.
    DpEvent: the aggregator's.

  Attributes:
    counts: Number of deltas by outcome: "accepted"; `TOO_LONG` for those that
      were accepted after clipping; and the reason for those that were refused.
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
      clip_norm: Largest L2 norm of a delta, all tensors together, positive.
      spec_digest: Digest of the run's spec.
      round_num: The round, from 0.
      devices: Devices that were asked. You must know for certain who they are,
        by attestation and an authenticated connection.
    """
    self._shapes = {name: tuple(shape) for name, shape in shapes.items()}
    self._clip_norm = clip_norm
    self._words = {SPEC: spec_digest, ROUND: str(round_num)}
    self._waiting = set(devices)
    self._devices = frozenset(devices)
    numbers = sum(map(math.prod, self._shapes.values()))
    self._max_bytes = 4 * numbers + _SPARE_BYTES
    self.counts: collections.Counter[str] = collections.Counter()

  def receive(self, device: str, message: bytes) -> list[np.ndarray]:
    """Checks a delta, and clips it.

    Args:
      device: The sender.
      message: Content of the message, a file of `tensor_files`.

    Returns:
      The delta, float32, in the order of `shapes`. It may share the memory of
      the message.

    Raises:
      ValueError: If it is refused, with the reason. The device may try again,
        unless it has sent a delta that was accepted.
    """
    try:
      delta = self._check(device, message)
    except ValueError as error:
      self.counts[str(error)] += 1
      raise
    self._waiting.remove(device)
    self.counts["accepted"] += 1
    norm = _norm(delta)
    if norm <= self._clip_norm * (1 + _ROUNDING):
      return delta
    self.counts[TOO_LONG] += 1
    factor = self._clip_norm / norm
    clipped = []
    for part in delta:
      # Convert one tensor at a time: float64 takes twice the memory.
      scaled = part.astype(np.float64) * factor
      clipped.append(scaled.astype(np.float32))
    return clipped

  def _check(self, device: str, message: bytes) -> list[np.ndarray]:
    """Returns a delta that is accepted, not yet clipped.

    Args:
      device: The sender.
      message: Content of the message, at most four bytes a number and 64 KiB.

    Raises:
      ValueError: If the device was not asked or has sent already, or the
        message is no delta of this run and round with the right, finite
        tensors.
    """
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
    for name, shape in self._shapes.items():
      tensor = tensors[name]
      if tensor.dtype != np.float32:
        raise ValueError("another type")
      if tensor.shape != shape:
        raise ValueError("another shape")
      if not np.isfinite(tensor).all():
        raise ValueError("not finite")
    return [tensors[name] for name in self._shapes]


def _norm(delta: Sequence[np.ndarray]) -> float:
  """Returns the L2 norm of all tensors together."""
  squares = 0.0
  for part in delta:
    # Squares of float32 do not overflow in float64; a tensor at a time saves
    # memory.
    squares += float(np.sum(np.square(part, dtype=np.float64)))
  return math.sqrt(squares)
