"""Random orders in which the devices of a population are asked."""

import math

import numpy as np

from tff_fedemb.deployment import devices as devices_lib

# Beside what is drawn of devices and of participants.
_ORDER = 100


def permute(
  places: np.ndarray, size: int, *, seed: int, counter: int
) -> np.ndarray:
  """Which of `size` slots have these places in a random order.

  A Feistel cipher of the smallest even number of bits that holds them, applied
  until the result is a slot (Black and Rogaway 2002, "Ciphers with Arbitrary
  Finite Domains"): all places together are a permutation, of which none but
  those asked for is computed.

  Args:
    places: In 0 ... size - 1.
    size: At least 1.
    seed: Decides the order, together with the counter.
    counter: Number of the order.
  """
  half = max(math.ceil((size - 1).bit_length() / 2), 1)
  low_bits = np.uint64((1 << half) - 1)
  values = np.asarray(places).astype(np.uint64)
  left_out, others = np.arange(values.size), values.ravel()
  while left_out.size:
    left, right = others >> np.uint64(half), others & low_bits
    for step in range(4):
      drawn = devices_lib.draw_bits(right, _ORDER, counter, step, seed=seed)
      drawn &= low_bits
      left, right = right, left ^ drawn
    others = (left << np.uint64(half)) | right
    values.flat[left_out] = others
    is_outside = others >= size
    left_out, others = left_out[is_outside], others[is_outside]
  return values.astype(np.int64)
