"""Secure sums, simulated: what the server would learn, without cryptography.

Secure aggregation (Bonawitz et al. 2017, "Practical Secure Aggregation for
Privacy-Preserving Machine Learning") shows the server a round's sum of integers
and no summand, if enough of the round's clients last until its end. One process
cannot hide summands from itself: here the sum is computed in the clear, with
its bounds, its modulus and its threshold, so that a process made for secure
sums gives the same results as with them.

Nothing is hidden from the process that runs the simulation.
"""

from collections.abc import Sequence
import dataclasses
import importlib
import math
from typing import Any

import numpy as np
import tensorflow as tf

from tff_fedemb import errors

# How reports describe secure sums.
SIMULATED = "simulated, not cryptographic"
# TFF's own simulation sums in signed 64 bits, and leaves one bit for the sum.
MAX_BITWIDTH = 62


def allow_nested_aggregators() -> None:
  """Lets TFF build and run processes whose aggregators are nested deeply.

  Call it before `tff.learning.ddp_secure_aggregator` becomes a part of a
  process. TFF's computations are messages of Protocol Buffers, which refuse to
  read the hundredth level of nesting as a guard against hostile input. The
  guard is lifted for this program, which reads its own messages.
  """
  # The implementation in use has this documented switch.
  importlib.import_module("google._upb._message").SetAllowOversizeProtos(True)


class TooFewSurvivorsError(errors.FieldError):
  """A round's secure sum stays hidden: too many of its clients were lost."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecureSums:
  """The secure sums of a process, as plain data that can be sent elsewhere.

  Attributes:
    num_simple: Tensors of a client's work that are for plain sums; they come
      first.
    specs: Shape and type of each of the others.
    max_inputs: The largest number that may be sent, for each; `None` if it has
      a modulus.
    moduli: The modulus of each; `None` if it has a bound.
  """

  num_simple: int
  specs: Sequence[tuple[Any, Any]]
  max_inputs: Sequence[int | None]
  moduli: Sequence[int | None]

  def split(self, update: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Splits a client's update into the tensors for plain and secure sums.

    Args:
      update: The leaves of the client's work.

    Returns:
      The leaves for plain sums, and those for secure sums.
    """
    simple = update[: self.num_simple]
    return list(simple), list(update[self.num_simple :])

  def check(self, update: Sequence[Any]) -> None:
    """Checks what a client, or some of one call, are about to send.

    Args:
      update: The leaves of their work.

    Raises:
      tf.errors.InvalidArgumentError: If a number is below 0 or above the bound
        of its sum; TFF's own simulation raises it above the bound.
    """
    _, summands = self.split(update)
    for summand, bound in zip(summands, self.max_inputs, strict=True):
      if bound is None or not np.size(summand):
        continue
      low = int(np.min(summand))
      high = int(np.max(summand))
      if low < 0 or high > bound:
        raise tf.errors.InvalidArgumentError(
          None,
          None,
          f"inputs of a secure sum must be from 0 to {bound}, found"
          f" {low if low < 0 else high}.",
        )

  def start_round(self) -> "RoundTotal":
    """Returns the sums of no client."""
    return RoundTotal(
      [np.zeros(shape, dtype) for shape, dtype in self.specs], self.moduli
    )


@dataclasses.dataclass
class RoundTotal:
  """The secure sums of one round; order does not matter to integers.

  Attributes:
    totals: Sums so far.
    moduli: Modulus of each; `None` if it has a bound.
    num_survivors: Number of clients in them.
  """

  totals: Sequence[np.ndarray]
  moduli: Sequence[int | None]
  num_survivors: int = 0

  def add(self, summands: Sequence[Any], *, num_clients: int = 1) -> None:
    """Adds what some clients send.

    A sum with a modulus is exact for any number of clients. One with bounds
    has the type of its inputs and wraps around where they do, as TFF's does.

    Args:
      summands: A leaf for each sum.
      num_clients: Number of clients that sent them.
    """
    self.num_survivors += num_clients
    for total, summand, modulus in zip(
      self.totals, summands, self.moduli, strict=True
    ):
      if modulus is None:
        np.add(total, summand, out=total)
      else:
        limit = total.dtype.type(modulus)
        rest = np.mod(summand, limit)
        # The chosen branch never overflows the type.
        total[...] = np.where(
          total < limit - rest, total + rest, total - (limit - rest)
        )

  def reveal(self, num_clients: int, *, threshold: float) -> list[Any]:
    """Returns the sums, if there are any and enough clients have lasted.

    Args:
      num_clients: Number of clients that began the round.
      threshold: Smallest share of them whose sum is revealed.

    Returns:
      The sums; NumPy scalars for those without dimensions.

    Raises:
      TooFewSurvivorsError: If fewer have lasted.
    """
    # 0.55 * 100, for example, is a little above 55 in floating point.
    required = math.ceil(threshold * num_clients - 1e-9)
    if self.totals and self.num_survivors < required:
      raise TooFewSurvivorsError(
        "secure_sum_threshold",
        "be at most the share of a round's clients that last,"
        f" {self.num_survivors} of {num_clients}",
        f"{threshold:.4g}",
        "The round has changed nothing.",
      )
    # Like sessions, return no array for a sum without dimensions.
    return [total[()] for total in self.totals]
