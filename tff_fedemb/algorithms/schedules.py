"""Client learning-rate schedules over the rounds of a run."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import math
from typing import Any

from etils import epy

from tff_fedemb import checks
from tff_fedemb import config

with epy.lazy_imports():
  import tensorflow as tf

Schedule = Callable[[Any], Any]


# Factors by the share of the run that is over; a new one is one line here.
SCHEDULES: dict[str, Schedule | None] = {
  "constant": None,
  "linear": lambda progress: 1.0 - progress,
  "cosine": lambda progress: 0.5 * (1.0 + tf.cos(math.pi * progress)),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleConfig(config.Config):
  """How the learning rate of the clients changes.

  Attributes:
    client_lr_schedule: Client learning rate over the rounds; all but constant
      fall to 0.
  """

  client_lr_schedule: str = config.field("constant", choices=SCHEDULES)

  def build(self, rounds: int) -> Schedule | None:
    """Builds the factor of the client learning rate.

    Args:
      rounds: Rounds of the run, at least 1; in this one the factor is 0.

    Returns:
      A function from the round (int32 scalar tensor) to a float32 factor, or
      `None` for a constant rate.
    """
    checks.check_rounds(rounds, minimum=1)
    factor = SCHEDULES[self.client_lr_schedule]
    if factor is None:
      return None
    return lambda round_num: factor(
      tf.minimum(tf.cast(round_num, tf.float32) / rounds, 1.0)
    )
