"""What rounds measured whose noise would be the same if they ran again.

Correlated noise is a function of a seed in the checkpoint. After a checkpoint
was lost its rounds run again with the noise that they had: on the same sum that
releases nothing new, on another one it gives away by how much the two differ.
What a round measures tells whether its data were the same. It is kept in a file
of its own, which rounds that run again shorten in no way, and written before
anybody can have seen the round's model.
"""

from collections.abc import Iterable, Mapping
import json
import math
import os
import pathlib

from tff_fedemb import errors

NUM_SKIPPED_CLIENTS = "participants/num_skipped_clients"
NUM_SKIPPED_EXAMPLES = "client_work/num_skipped_examples"
FILE_NAME = "measured_by_round.json"
# What a round measures again if it is run again on the same data with the same
# clients and examples left out, but for rounding, and the field to look at.
_SAME_AGAIN = {
  NUM_SKIPPED_CLIENTS: "on_client_error",
  NUM_SKIPPED_EXAMPLES: "on_bad_example",
  "client_work/loss": "data_dir",
}
_RELATIVE_ROUNDING = 1e-3


class MeasuredRounds:
  """What rounds measured, by their number from 1, in a file."""

  def __init__(self, directory: str | os.PathLike[str]):
    """Reads the file, if there is one, in a directory."""
    self._path = pathlib.Path(directory) / FILE_NAME
    self._rounds: dict[str, dict[str, float | None]] = {}
    if self._path.exists():
      self._rounds = json.loads(self._path.read_text())

  def require(self, rounds: Iterable[int]) -> None:
    """Refuses to run rounds again of which nobody knows what they measured.

    Raises:
      errors.FieldError: If one of them is not in the file.
    """
    unknown = [n for n in rounds if str(n) not in self._rounds]
    if unknown:
      raise errors.FieldError(
        "run_dir",
        f"hold in {self._path} what round {unknown[0]} measured: it would run"
        " again with the same noise, and that on another sum would give both"
        " away",
        f"nothing of {len(unknown)} rounds. Take another one to start again.",
      )

  def check(self, report: Mapping[str, float], round_num: int) -> None:
    """Refuses a round on other data than before; keeps what is new.

    Args:
      report: What it measured.
      round_num: Its number.

    Raises:
      errors.FieldError: If it ran before and measured something else.
    """
    now = {name: _finite(report.get(name)) for name in _SAME_AGAIN}
    before = self._rounds.setdefault(str(round_num), now)
    for name, field in _SAME_AGAIN.items():
      was, found = before.get(name), now[name]
      if was is None or found is None:
        is_same = was == found
      else:
        is_same = math.isclose(was, found, rel_tol=_RELATIVE_ROUNDING)
      if not is_same:
        raise errors.FieldError(
          field,
          f"leave round {round_num} as it was when it ran before, now that it"
          f" runs again with the same noise, of {name} {_words(was)}",
          _words(found),
        )
    if before is now:
      partial = self._path.with_suffix(".partial")
      partial.write_text(json.dumps(self._rounds))
      os.replace(partial, self._path)


def _finite(value: float | None) -> float | None:
  """None for what is not measured, which a loss of no examples is not."""
  return None if value is None or not math.isfinite(value) else float(value)


def _words(value: float | None) -> str:
  return "not measured" if value is None else f"{value:g}"
