"""Client learning-rate schedules over the rounds of a run."""

from collections.abc import Callable
import math

import tensorflow as tf

Schedule = Callable[[tf.Tensor], tf.Tensor]


def _progress(round_num: tf.Tensor, total_rounds: int) -> tf.Tensor:
  return tf.minimum(tf.cast(round_num, tf.float32) / total_rounds, 1.0)


def _linear(total_rounds: int) -> Schedule:
  return lambda round_num: 1.0 - _progress(round_num, total_rounds)


def _cosine(total_rounds: int) -> Schedule:
  return lambda round_num: (
    0.5 * (1.0 + tf.cos(math.pi * _progress(round_num, total_rounds)))
  )


# A new schedule is one function and one line here.
SCHEDULES: dict[str, Callable[[int], Schedule | None]] = {
  "constant": lambda total_rounds: None,
  "linear": _linear,
  "cosine": _cosine,
}


def build_schedule(name: str, *, rounds: int) -> Schedule | None:
  """Builds the factor of the client learning rate as a function of the round.

  Args:
    name: A key of `SCHEDULES`; "linear" and "cosine" fall from 1 in round 0 to
      0 in round `rounds`.
    rounds: Rounds of the run, at least 1.

  Returns:
    A function from the round (int32 scalar tensor) to a float32 factor, or
    `None` for a constant rate.

  Raises:
    ValueError: If the name is unknown or `rounds` less than 1.
  """
  if name not in SCHEDULES:
    raise ValueError(
      f"client_lr_schedule must be one of {sorted(SCHEDULES)}, found {name!r}."
    )
  if rounds < 1:
    raise ValueError(f"rounds must be at least 1, found {rounds}.")
  return SCHEDULES[name](rounds)
