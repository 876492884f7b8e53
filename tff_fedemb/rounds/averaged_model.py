"""The average of the models that rounds have released.

Under noise, an average over rounds has less of it than the last model alone.
Polyak and Juditsky 1992, "Acceleration of Stochastic Approximation by
Averaging"; with differential privacy De et al. 2022, section 3.

Privacy:
  Unit, neighbouring relation, sensitivity, DpEvent: those of the rounds. The
  average is computed from models that the account covers, and costs nothing.
"""

from typing import Any

import numpy as np
import tree


def share_of_past(decay: float, rounds_done: int) -> float:
  """Share that the average of the rounds before has in the new one.

  Args:
    decay: The share after many rounds, in (0, 1).
    rounds_done: Number of rounds, the new one included. The first ones count
      less, as they are far from where training ends.
  """
  return min(decay, (1 + rounds_done) / (10 + rounds_done))


def average(
  before: Any, weights: Any, *, decay: float, rounds_done: int
) -> Any:
  """Returns the average with one model more.

  Args:
    before: Average of the rounds before, nested arrays; of none, the start.
    weights: The new model, likewise.
    decay: See `share_of_past`.
    rounds_done: See `share_of_past`.
  """
  share = share_of_past(decay, rounds_done)

  def mix(old: Any, new: Any) -> np.ndarray:
    mixed = share * np.asarray(old, np.float64)
    mixed += (1.0 - share) * np.asarray(new, np.float64)
    return mixed.astype(np.asarray(new).dtype)

  return tree.map_structure(mix, before, weights)
