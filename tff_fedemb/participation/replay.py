"""Draws the users of a trace once more, from the key that they came from.

What `Participation.check_trace` can refute with some power only, this decides:
with the key at hand, who took part, and with whom, is what the code draws.
"""

from collections.abc import Callable, Iterable

import numpy as np

from tff_fedemb.data import participation_trace
from tff_fedemb.participation import participation


def check_draw(
  draw: Callable[[int], list[np.ndarray]],
  rounds: Iterable[participation_trace.RecordedRound],
  *,
  source: str,
) -> None:
  """Refuses a trace that is not what is drawn.

  Args:
    draw: From a round's number to its virtual clients, in the order of the
      rounds.
    rounds: Of the trace.
    source: Who draws them from what, in words.

  Raises:
    participation.ClaimError: Names the first round that is another one.
  """
  for recorded in rounds:
    drawn = participation_trace.RecordedRound.of(
      recorded.number, draw(recorded.number)
    )
    if not recorded.is_as(drawn):
      raise participation.ClaimError(
        f"the users of every round must be those that {source}; round"
        f" {recorded.number:,} of the trace has {recorded.slots.size:,} users"
        f" in {recorded.num_clients:,} virtual clients where it draws others,"
        f" {drawn.slots.size:,} in {drawn.num_clients:,}."
      )
