"""Whether the files of a run agree with its chain.

A chain that was cut is still a chain: it ends too early for the trace, for a
later checkpoint, model or row of metrics. Whoever writes all files of a run
anew makes another run of them: no file can prove that this is not what
happened.
"""

from collections.abc import Iterator
import os
import pathlib
from typing import Any

import pandas as pd

from tff_fedemb import errors
from tff_fedemb.data import participation_trace
from tff_fedemb.program import chain as chain_lib
from tff_fedemb.program import model_card
from tff_fedemb.program import run_directory

# The first line has digests of these files.
_FILES = (run_directory.SPEC, run_directory.DEPLOYMENT)
_CARD = f"{run_directory.SAVED_MODEL}/{model_card.PATH}"
_METRICS = "metrics.csv"


def digest_files(run_dir: pathlib.Path) -> dict[str, str | None]:
  """Digests of the files that decide a run, by name; `None` without one."""
  paths = {name: run_dir / name for name in _FILES}
  return {
    name: chain_lib.digest(path.read_bytes()) if path.exists() else None
    for name, path in paths.items()
  }


def read(run_dir: str | os.PathLike[str]) -> chain_lib.Chain:
  """Reads the chain of a run, and refuses it if another file gainsays it.

  Args:
    run_dir: Directory of the run.

  Raises:
    errors.FieldError: If there is no chain, it is damaged, or a file says
      something else.
    errors.DataError: If the trace is missing or damaged.
  """
  path = pathlib.Path(run_dir)
  chain = chain_lib.Chain(path)
  if not chain.found:
    raise errors.FieldError(
      "run_dir",
      f"hold the {chain_lib.NAME} of its run",
      f"{path} without: it was lost, or is of an earlier version",
    )
  for name, digest in digest_files(path).items():
    if digest != chain.found["files"][name]:
      raise _gainsaid(name, "another file", "when the run began")
  for name, number in _rounds_told(chain, path):
    if number > chain.rounds:
      raise _gainsaid(name, f"round {number:,}", f"{chain.rounds:,} rounds")
  summary = run_directory.read_json(path / run_directory.SUMMARY)
  _check_trace(chain, path, is_finished=summary is not None)
  card = run_directory.read_json(path / _CARD)
  line = _get(_get(card, "training"), "chain")
  if card is not None and not chain.has_line(line):
    raise _gainsaid(_CARD, f"line {line}", "none like it")
  if summary is not None:
    _check_summary(chain, summary)
  return chain


def open_chain(run_dir: str | os.PathLike[str]) -> chain_lib.Chain:
  """Returns the chain of a run that goes on; an empty one of a new run.

  Args:
    run_dir: Directory of the run.

  Raises:
    As `read`, if the run has left anything to go on with.
  """
  chain = chain_lib.Chain(run_dir)
  finished = os.path.exists(os.path.join(run_dir, run_directory.SUMMARY))
  begun = chain.found or run_directory.checkpointed_rounds(run_dir)
  return read(run_dir) if begun or finished else chain


def _rounds_told(
  chain: chain_lib.Chain, path: pathlib.Path
) -> Iterator[tuple[str, int]]:
  """Files that tell of rounds that ran, and the last one they tell of."""
  for number in run_directory.checkpointed_rounds(path):
    yield f"{run_directory.CHECKPOINTS}/round_{number}", number
  if (path / _METRICS).exists():
    rows = pd.read_csv(path / _METRICS, usecols=["round_num"])
    yield _METRICS, max(rows.round_num, default=0)
  if (path / run_directory.SUMMARY).exists():
    yield run_directory.SUMMARY, chain.planned.rounds


def _check_trace(
  chain: chain_lib.Chain, path: pathlib.Path, *, is_finished: bool
) -> None:
  name = run_directory.TRACE
  with participation_trace.TraceReader(path / name) as trace:
    begun = trace.num_rounds - chain.rounds
    # One round may have begun when the program was killed.
    if begun not in (0, 1) or (begun and is_finished):
      raise _gainsaid(name, f"{trace.num_rounds:,} rounds", chain.rounds)
    recorded = trace.read(chain.rounds)
    for each, digest in zip(recorded, chain.participants, strict=True):
      if each.digest != digest:
        raise _gainsaid(name, "other users", f"in round {each.number + 1:,}")


def _check_summary(chain: chain_lib.Chain, summary: Any) -> None:
  planned = chain.planned
  expected = {"chain": chain.head, "rounds": planned.rounds}
  if planned.round_sum is not None:
    expected["num_private_parameters"] = planned.round_sum.num_parameters
  for name, value in expected.items():
    if _get(summary, name) != value:
      there = f"{name} {_get(summary, name)}"
      raise _gainsaid(run_directory.SUMMARY, there, value)


def _get(values: Any, name: str) -> Any:
  return values.get(name) if isinstance(values, dict) else None


def _gainsaid(name: str, there: object, here: object) -> errors.FieldError:
  return errors.FieldError(
    "run_dir",
    f"hold a {name} that agrees with its {chain_lib.NAME}",
    f"{there} there and {here} in the chain",
  )
