"""Client learning-rate schedules over the rounds of a run."""

from __future__ import annotations

from collections.abc import Callable
import math
from typing import Any

from etils import epy

with epy.lazy_imports():
  import tensorflow as tf

Schedule = Callable[[Any], Any]


# Factors by the share of the run that is over; a new one is one line here.
SCHEDULES: dict[str, Schedule | None] = {
  "constant": None,
  "linear": lambda progress: 1.0 - progress,
  "cosine": lambda progress: 0.5 * (1.0 + tf.cos(math.pi * progress)),
}
