"""Chain of what happened in a run: an append-only file, `rounds.jsonl`.

The first line says what was found when the run began: what a round costs, how
many there are to be, who the users are and by which settings. Every other line
is of a round that ran (digests of who took part and of the model it released)
or of a checkpoint (a digest of the whole state, noise included), or at the end
of what may be given away (a digest of each file). Each names the SHA-256 digest
of the line before, and is on the disk before anything is done with its model.
The ledger is read from here.

A digest lets anybody test a guess of what it is of. So the file is its owner's
alone, and the first line has random bytes: the digest of a line, which a model
takes along, tells nothing to those who do not have the file.
"""

from collections.abc import Mapping, Sequence
from concurrent import futures
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import secrets
from typing import Any

import numpy as np
import tree

from tff_fedemb import errors
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.records import run_directory

NAME = "rounds.jsonl"

_FORMAT = ["tff_fedemb.program.chain", 1]
# These may differ in a program that goes on with a run.
_VARYING = ("code_version", "nonce", "previous")
# All cores have a part of a large array.
_BYTES_OF_PART = 2**22


def digest(data: bytes) -> str:
  """The SHA-256 digest of bytes, in hexadecimal digits."""
  return hashlib.sha256(data).hexdigest()


def digest_of(structure: Any) -> str:
  """A digest of nested arrays: their types, shapes and bytes, in order."""
  kinds = []
  parts: list[bytes | memoryview] = []
  for leaf in tree.flatten(structure):
    array = np.asarray(leaf)
    kinds.append((array.dtype.str, array.shape))
    if array.dtype.kind in "OSU":
      parts.append(repr(array.tolist()).encode())
      continue
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    parts += [
      data[start : start + _BYTES_OF_PART]
      for start in range(0, len(data), _BYTES_OF_PART)
    ]
  with futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    digests = list(pool.map(digest, parts))
  return digest(f"{kinds} {digests}".encode())


class Chain:
  """Record of what happened so far, as `rounds.jsonl` has it.

  Attributes:
    found: The first line, JSON values by name; empty if there is none yet.
  """

  def __init__(self, run_dir: str | os.PathLike[str]):
    """Reads the chain of a run, if there is one.

    A last line that was not written to its end is left out.

    Args:
      run_dir: Directory of the run.

    Raises:
      errors.FieldError: If a line does not follow from those before it.
    """
    self._path = pathlib.Path(run_dir) / NAME
    self.found: Mapping[str, Any] = {}
    # Digests of the lines.
    self._lines: list[str] = []
    # Each run of each round released these, by the digest of its line; its
    # participants are beside them.
    self._released: list[dict[str, str]] = []
    self._participants: list[str] = []
    # Lines by the number of finished rounds.
    self._states: dict[int, list[str]] = {}
    # Files that may be given away, by the lines from the last round or state.
    self._given_away: dict[str, dict[str, str]] = {}
    self._end = 0
    data = self._path.read_bytes() if self._path.exists() else b""
    for line in data.split(b"\n")[:-1]:
      try:
        self._take(line + b"\n")
      except (ValueError, KeyError, TypeError, IndexError) as error:
        raise errors.FieldError(
          "run_dir",
          f"hold a {NAME} whose lines follow from each other",
          f"line {len(self._lines) + 1} of {self._path}, which does not",
        ) from error

  def _take(self, line: bytes) -> None:
    values = json.loads(line)
    given_away: dict[str, str] = {}
    if values["previous"] != self.head:
      raise ValueError("another line was before this one")
    if not self._lines:
      if values["format"] != _FORMAT:
        raise ValueError("a file of another version")
      ledger_lib.Ledger.from_json(values["planned"])
      self.found = values
    elif "given_away" in values:
      given_away = dict(values["given_away"])
    elif "state" in values:
      states = self._states.setdefault(values["rounds_done"], [])
      states.append(values["state"])
    else:
      number = values["round"]
      if number < 1:
        raise ValueError("rounds are counted from 1")
      if number == self.rounds + 1:
        self._released.append({})
        self._participants.append(values["participants"])
      if self._participants[number - 1] != values["participants"]:
        raise ValueError("a round that ran again, with other users")
      self._released[number - 1][digest(line)] = values["released"]
    self._lines.append(digest(line))
    self._end += len(line)
    if not given_away:
      self._given_away.clear()
    self._given_away[self._lines[-1]] = given_away

  def _append(self, **values: Any) -> None:
    line = json.dumps({"previous": self.head} | values, allow_nan=False)
    with open(self._path, "ab", opener=_open_private) as file:
      # This removes a line that was not written to its end.
      file.truncate(self._end)
      file.write(line.encode() + b"\n")
      file.flush()
      os.fsync(file.fileno())
    self._take(line.encode() + b"\n")

  @property
  def head(self) -> str | None:
    """Digest of the last line."""
    return self._lines[-1] if self._lines else None

  @property
  def rounds(self) -> int:
    """Number of rounds that ran, each counted once."""
    return len(self._released)

  @property
  def participants(self) -> tuple[str, ...]:
    """Digests of who took part, by round."""
    return tuple(self._participants)

  @property
  def lines_of_rounds(self) -> list[list[str]]:
    """Digests of the lines of each round, one for each time that it ran."""
    return [list(each) for each in self._released]

  def has_line(self, line: str) -> bool:
    """Whether a digest is that of a line."""
    return line in self._lines

  @property
  def given_away(self) -> Mapping[str, str]:
    """Digests of the files that may be given away; none before the end."""
    return self._given_away[self.head] if self.head else {}

  def given_away_at(self, line: str) -> Mapping[str, str] | None:
    """The same as it was at a line; `None` if rounds or states follow it."""
    return self._given_away.get(line)

  @functools.cached_property
  def planned(self) -> ledger_lib.Ledger:
    """The ledger of all the rounds that were asked for."""
    return ledger_lib.Ledger.from_json(self.found["planned"])

  @property
  def noise_is_the_same_again(self) -> bool:
    """Whether a round that runs again has the noise that it had."""
    return self.planned.noise.strategy is not None

  @property
  def ledger(self) -> ledger_lib.Ledger:
    """Ledger of the rounds that ran, each as often as it ran."""
    return self._ledger_of([len(each) for each in self._released])

  def ledger_to_the_end(self, rounds_done: int) -> ledger_lib.Ledger:
    """Ledger of all rounds if nothing interrupts the run any more.

    Args:
      rounds_done: Number of rounds after which the run goes on; those behind
        it run again.
    """
    times = [len(each) for each in self._released]
    if not self.noise_is_the_same_again:
      times[rounds_done:] = [each + 1 for each in times[rounds_done:]]
    to_come = self.planned.rounds - len(times)
    return self._ledger_of(times + [1] * to_come)

  def _ledger_of(self, runs_of_rounds: Sequence[int]) -> ledger_lib.Ledger:
    ledger = dataclasses.replace(self.planned, history=())
    return ledger.with_runs(self.planned.noise, runs_of_rounds)

  @property
  def run_id(self) -> str:
    """Tells the run and its copies from all others, and nothing else of it."""
    return digest(self.found["nonce"].encode())

  def begin(self, planned: ledger_lib.Ledger, **found: Any) -> None:
    """Writes the first line, or refuses to go on with what began otherwise.

    Args:
      planned: Ledger of all the rounds that are asked for.
      **found: What else decides the run, JSON values by name; code_version
        may differ in a program that goes on with it.

    Raises:
      errors.FieldError: Names the first thing that was another one.
    """
    now = {"format": _FORMAT, "planned": planned.to_json(), **found}
    if not self._lines:
      self._append(nonce=secrets.token_hex(32), **now)
      return
    was = _without_varying(self.found)
    now = _without_varying(now)
    if different := run_directory.differ(was, now):
      raise errors.FieldError("run_dir", "go on as it began", different)

  def record_round(self, number: int, participants: str, released: Any) -> None:
    """Records a round that ran, before its model is used for anything.

    Args:
      number: Number of the round, from 1.
      participants: Digest of who took part.
      released: The model, nested arrays.

    Raises:
      errors.FieldError: If it ran before with the same noise, and came to
        another model: together they would give both away.
    """
    found = digest_of(released)
    if number > self.rounds or not self.noise_is_the_same_again:
      self._append(round=number, participants=participants, released=found)
    elif [found] != list(self._released[number - 1].values()):
      raise _not_as_before(f"the model that round {number} released")

  def record_state(self, rounds_done: int, state: Any) -> None:
    """Records a state, before it is saved.

    Args:
      rounds_done: Number of rounds that led to it.
      state: Nested arrays, those of the noise included.

    Raises:
      errors.FieldError: If the same rounds led to another state before, with
        the same noise.
    """
    found = digest_of(state)
    before = self._states.get(rounds_done, [])
    if found in before:
      return
    # Before the first round nothing was released, and another seed is as good.
    if before and rounds_done and self.noise_is_the_same_again:
      raise _not_as_before(f"the state after round {rounds_done}")
    self._append(rounds_done=rounds_done, state=found)

  def check_released(self, number: int, weights: Any) -> None:
    """Refuses a model that a round did not release.

    Args:
      number: Number of the round, from 1.
      weights: The model, nested arrays.

    Raises:
      errors.FieldError: If it did not.
    """
    known = self._released[number - 1] if number <= self.rounds else {}
    if digest_of(weights) not in known.values():
      raise errors.FieldError(
        "run_dir",
        f"hold models that its {NAME} knows",
        f"another one of round {number}",
        "Take another directory to start again.",
      )

  def record_given_away(self, files: Mapping[str, str]) -> None:
    """Records what may be given away, before a run is finished.

    Args:
      files: Digests by name.
    """
    if files != self.given_away:
      self._append(given_away=dict(files))

  def check_state(self, rounds_done: int, state: Any, line: str) -> None:
    """Refuses a checkpoint that is not one of this chain.

    Args:
      rounds_done: Number of rounds that led to it.
      state: Nested arrays, as they were saved.
      line: Digest of the last line when they were.

    Raises:
      errors.FieldError: If it is not.
    """
    known = self._states.get(rounds_done, [])
    if not self.has_line(line) or digest_of(state) not in known:
      raise errors.FieldError(
        "run_dir",
        f"hold checkpoints that its {NAME} knows",
        f"another one of round {rounds_done}",
        "Take another directory to start again.",
      )


def _open_private(path: str, flags: int) -> int:
  descriptor = os.open(path, flags, mode=0o600)
  os.fchmod(descriptor, 0o600)
  return descriptor


def _not_as_before(what: str) -> errors.FieldError:
  return errors.FieldError(
    "run_dir",
    f"come to {what} before, now that it runs again with the same noise",
    "another one",
    "The same data give the same, by the same runtime on a processor of the"
    " same kind; or take another directory to start again.",
  )


def _without_varying(values: Mapping[str, Any]) -> dict[str, Any]:
  """Without what another start of the same run may have otherwise."""
  return {name: values[name] for name in values if name not in _VARYING}
