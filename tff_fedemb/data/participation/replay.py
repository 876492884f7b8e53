"""Draws the users of a trace once more, from the key that they came from.

What `Participation.check_trace` can refute with some power only, this decides:
with the key at hand, who took part, and with whom, is what the code draws.
"""

from collections.abc import Iterable

from tff_fedemb.data import participation_trace
from tff_fedemb.data.participation import participation


def check_draw(
  claim: participation.Participation,
  rounds: Iterable[participation_trace.RecordedRound],
  *,
  key: int,
) -> None:
  """Refuses a trace that the key does not draw.

  Args:
    claim: How users take part.
    rounds: Of the trace.
    key: As in `Participation.sample`.

  Raises:
    participation.ClaimError: Names the first round that is another one.
  """
  for recorded in rounds:
    drawn = participation_trace.RecordedRound.of(
      recorded.number, claim.sample(recorded.number, key=key)
    )
    if not recorded.is_as(drawn):
      raise participation.ClaimError(
        f"the users of every round must be those that {claim.name} draws from"
        f" the run's key; round {recorded.number:,} of the trace has"
        f" {recorded.slots.size:,} users in {recorded.num_clients:,} virtual"
        f" clients where the key draws others, {drawn.slots.size:,} in"
        f" {drawn.num_clients:,}."
      )
