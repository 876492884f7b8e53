"""Averages of the models of rounds, and mixtures of a model with the start.

An average over rounds has less noise than the last model alone.
Polyak and Juditsky 1992, "Acceleration of Stochastic Approximation by
Averaging"; with differential privacy De et al. 2022, section 3. A model between
the pretrained one and what few images made of it keeps more of what the first
knew: Wortsman et al. 2022, "Robust Fine-tuning of Zero-shot Models".

Privacy:
  Unit, neighbouring relation, sensitivity, DpEvent: those of the rounds. The
  average is computed from models that the account covers and from the start,
  which no round has touched, so it costs nothing.
"""

from typing import Any

import numpy as np
import tree


def share_of_past(decay: float, rounds_done: int) -> float:
  """Returns the share that the former average has in the new one, in (0, 1).

  It begins low: the first models are far from where training ends.

  Args:
    decay: The share after many rounds, in (0, 1).
    rounds_done: Number of rounds, the new one included.

  Returns:
    The smaller of `decay` and (1 + n) / (10 + n) for n rounds.
  """
  return min(decay, (1 + rounds_done) / (10 + rounds_done))


def average(
  before: Any, weights: Any, *, decay: float | None, rounds_done: int
) -> Any:
  """Returns the average with one model more.

  Args:
    before: Average of the earlier rounds, nested arrays; before the first
      round, the model at the start.
    weights: The new model, nested arrays of the same shapes.
    decay: See `share_of_past`; `None` if nothing is averaged.
    rounds_done: See `share_of_past`.

  Returns:
    Nested arrays of the types of the new model; `None` if nothing is averaged.
  """
  if decay is None:
    return None
  return mix(before, weights, share=share_of_past(decay, rounds_done))


def mix(before: Any, weights: Any, *, share: float) -> Any:
  """Returns the weighted mean of two models.

  Args:
    before: The first model, nested arrays.
    weights: The second one, nested arrays of the same shapes.
    share: Weight of the first one, in [0, 1].

  Returns:
    Nested arrays of the types of the second model, computed in float64; the
    second model itself if it has all the weight.
  """
  if not share:
    return weights

  def mix_arrays(old: Any, new: Any) -> np.ndarray:
    mixed = share * np.asarray(old, np.float64)
    mixed += (1.0 - share) * np.asarray(new, np.float64)
    dtype = np.asarray(new).dtype
    return mixed.astype(dtype)

  return tree.map_structure(mix_arrays, before, weights)
