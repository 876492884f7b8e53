"""Chain of what happened in a run: an append-only file, `rounds.jsonl`.

The first line records what was found when the run began: the cost of a round,
the number of rounds, the users and the settings. Each other line records one of
these:

* a round that ran: digests of its participants and of the model it released;
* a checkpoint: a digest of the whole state, noise included;
* what may be given away at the end: a digest of each file.

Each line has the SHA-256 digest of the line before, and is on the disk before
anything is done with its model. The ledger is read from here.

With a digest, anybody can test a guess of the content. So the file is readable
by its owner alone, and the first line has random bytes: a model carries the
digest of a line, which tells nothing to those who do not have the file.
"""

from collections.abc import Collection, Mapping, Sequence
from concurrent import futures
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
# These may differ when a program goes on with a run.
_VARYING = ("code_version", "nonce", "previous")
# Large arrays are digested in parts of this size, on all cores.
_BYTES_OF_PART = 2**22


def digest(data: bytes) -> str:
  """Returns the SHA-256 digest of bytes, 64 hexadecimal digits.

  Args:
    data: Bytes, or anything else with the buffer protocol.
  """
  return hashlib.sha256(data).hexdigest()


def digest_of(structure: Any) -> str:
  """Returns a digest of nested arrays: their types, shapes and bytes.

  Args:
    structure: Nested arrays, scalars, texts or bytes. Names in mappings do not
      count, except that they order the values.

  Returns:
    64 hexadecimal digits.
  """
  kinds = []
  parts: list[bytes | memoryview] = []
  for leaf in tree.flatten(structure):
    array = np.asarray(leaf)
    kinds.append((array.dtype.str, array.shape))
    if array.dtype.kind in "OSU":
      parts.append(repr(array.tolist()).encode())
      continue
    flat = np.ascontiguousarray(array).reshape(-1)
    data = flat.view(np.uint8).data
    for start in range(0, len(data), _BYTES_OF_PART):
      parts.append(data[start : start + _BYTES_OF_PART])
  with futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    digests = list(pool.map(digest, parts))
  text = f"{kinds} {digests}"
  return digest(text.encode())


class Chain:
  """Record of what happened so far, as `rounds.jsonl` has it.

  A line that does not follow from the lines before it is refused when the chain
  is read, so an open chain is consistent up to its last line.

  Attributes:
    found: The first line, JSON values by name; empty before `begin`.
  """

  def __init__(self, run_dir: str | os.PathLike[str]):
    """Reads the chain of a run, if there is one.

    An incomplete last line, which a killed program leaves, is ignored.

    Args:
      run_dir: Directory of the run.

    Raises:
      errors.FieldError: If a line does not follow from those before it.
    """
    self._path = pathlib.Path(run_dir) / NAME
    self.found: Mapping[str, Any] = {}
    # Digests of the lines.
    self._lines: list[str] = []
    # For each round: the digest of the released model for each time that the
    # round ran, by the digest of the line that records it.
    self._released: list[dict[str, str]] = []
    # Digest of the participants of each round.
    self._participants: list[str] = []
    # Digests of the models that rounds may have started from.
    self._starts: list[str] = []
    # Digests of states by the number of finished rounds.
    self._states: dict[int, list[str]] = {}
    # Digests of the files that may be given away, by the digest of the line
    # that records them. The first key is the last line of a round or a state,
    # which has no files.
    self._given_away: dict[str, dict[str, str]] = {}
    # Number of bytes of all complete lines.
    self._end = 0
    data = self._path.read_bytes() if self._path.exists() else b""
    for line in data.split(b"\n")[:-1]:
      try:
        self._take(line + b"\n")
      except errors.DataError:
        # A class of one's own that cannot be imported is no damage.
        raise
      except (ValueError, KeyError, TypeError, IndexError) as error:
        raise errors.FieldError(
          "run_dir",
          f"hold a {NAME} whose lines follow from each other",
          f"line {len(self._lines) + 1} of {self._path}, which does not",
        ) from error

  def _take(self, line: bytes) -> None:
    """Takes in a line, which ends in a line break.

    Raises:
      ValueError: If the line is no JSON, does not name the line before it, or
        contradicts it.
      KeyError, TypeError, IndexError: If it lacks a value or has one of another
        type.
    """
    values = json.loads(line)
    line_digest = digest(line)
    given_away: dict[str, str] = {}
    if values["previous"] != self.head:
      raise ValueError("another line was before this one")
    if not self._lines:
      self._take_first(values)
    elif "given_away" in values:
      given_away = dict(values["given_away"])
    elif "start" in values:
      self._starts.append(values["start"])
    elif "state" in values:
      states = self._states.setdefault(values["rounds_done"], [])
      states.append(values["state"])
    else:
      self._take_round(values, line_digest)
    self._lines.append(line_digest)
    self._end += len(line)
    if not given_away:
      self._given_away.clear()
    self._given_away[line_digest] = given_away

  def _take_first(self, values: dict[str, Any]) -> None:
    """Takes in the first line, whose ledger is read once as a check.

    Args:
      values: JSON values of the line.

    Raises:
      ValueError: If the file is of another version, or the ledger is damaged.
    """
    if values["format"] != _FORMAT:
      raise ValueError("a file of another version")
    # This raises an error if the ledger is damaged.
    ledger_lib.Ledger.from_json(values["planned"])
    self.found = values

  def _take_round(self, values: dict[str, Any], line_digest: str) -> None:
    """Takes in the line of a round.

    Args:
      values: JSON values of the line.
      line_digest: Digest of the line.

    Raises:
      ValueError: If the round is out of order, or ran before with other
        participants.
    """
    number = values["round"]
    participants = values["participants"]
    if number < 1:
      raise ValueError("rounds are counted from 1")
    if number == self.rounds + 1:
      self._released.append({})
      self._participants.append(participants)
    if self._participants[number - 1] != participants:
      raise ValueError("a round that ran again, with other users")
    self._released[number - 1][line_digest] = values["released"]

  def _append(self, **values: Any) -> None:
    """Writes a line to the disk, and takes it in.

    Args:
      **values: JSON values of the line, without the digest of the line before.
    """
    text = json.dumps({"previous": self.head} | values, allow_nan=False)
    line = f"{text}\n".encode()
    with open(self._path, "ab", opener=_open_private) as file:
      # Remove an incomplete last line.
      file.truncate(self._end)
      file.write(line)
      file.flush()
      os.fsync(file.fileno())
    self._take(line)

  @property
  def head(self) -> str | None:
    """Digest of the last line; `None` if there is none."""
    return self._lines[-1] if self._lines else None

  @property
  def rounds(self) -> int:
    """Number of rounds that ran, each counted once."""
    return len(self._released)

  @property
  def participants(self) -> tuple[str, ...]:
    """Digests of the participants, by round."""
    return tuple(self._participants)

  @property
  def lines_of_rounds(self) -> list[list[str]]:
    """By round: digests of its lines, one for each time that it ran."""
    return [list(each) for each in self._released]

  def has_line(self, line: str) -> bool:
    """Returns whether some line has this digest.

    Args:
      line: Digest to look for, 64 hexadecimal digits.

    Returns:
      Whether it is in the chain, at any place.
    """
    return line in self._lines

  @property
  def given_away(self) -> Mapping[str, str]:
    """Digests of the files that may be given away, by their names.

    Empty before the run has ended.
    """
    return self._given_away[self.head] if self.head else {}

  def given_away_at(self, line: str) -> Mapping[str, str] | None:
    """Returns what `given_away` was when a line was the last one.

    Args:
      line: Digest of the line.

    Returns:
      Digests by name; `None` if rounds or states follow the line, or if no line
      has this digest.
    """
    return self._given_away.get(line)

  @functools.cached_property
  def planned(self) -> ledger_lib.Ledger:
    """Ledger of all the rounds that were asked for, each run once."""
    return ledger_lib.Ledger.from_json(self.found["planned"])

  @property
  def noise_is_the_same_again(self) -> bool:
    """Whether a round that runs again has the same noise again."""
    return self.planned.noise.strategy is not None

  @property
  def ledger(self) -> ledger_lib.Ledger:
    """Ledger of the rounds that ran, each as many times as it ran."""
    return self._ledger_of([len(each) for each in self._released])

  def ledger_to_the_end(self, rounds_done: int) -> ledger_lib.Ledger:
    """Returns the ledger at the end if nothing interrupts the run any more.

    A round that runs again with fresh noise costs privacy again; with
    correlated noise it has the same noise, and costs nothing more.

    Args:
      rounds_done: Number of rounds after which the run goes on. Later ones that
        ran already run again.

    Returns:
      Ledger of all planned rounds, each as many times as it will have run.
    """
    times = [len(each) for each in self._released]
    if not self.noise_is_the_same_again:
      for later in range(rounds_done, len(times)):
        times[later] += 1
    to_come = self.planned.rounds - len(times)
    return self._ledger_of(times + [1] * to_come)

  def _ledger_of(self, runs_of_rounds: Sequence[int]) -> ledger_lib.Ledger:
    """Returns the ledger of rounds, by how many times each ran."""
    ledger = self.planned.without_rounds()
    return ledger.with_runs(self.planned.noise, runs_of_rounds)

  @property
  def is_trial(self) -> bool:
    """Whether the run is a trial of a tuning, and costs what that does."""
    return bool(self.found.get("is_trial"))

  @property
  def run_id(self) -> str:
    """Identifier of the run and of its copies; it reveals nothing else."""
    return digest(self.found["nonce"].encode())

  def begin(self, planned: ledger_lib.Ledger, **found: Any) -> None:
    """Writes the first line; compares it if there is one already.

    The first line also gets a nonce of 32 random bytes, from which `run_id` is
    derived.

    Args:
      planned: Ledger of all the rounds that are asked for.
      **found: Everything else that decides the run, JSON values by name. Only
        code_version may differ in a program that goes on with the run.

    Raises:
      errors.FieldError: If the run began with other values; names the first
        that differ.
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
      participants: Digest of its participants.
      released: Its model, nested arrays.

    Raises:
      errors.FieldError: If the round ran before with the same noise and
        released another model. The difference of the two has no noise.
    """
    found = digest_of(released)
    if number > self.rounds or not self.noise_is_the_same_again:
      self._append(round=number, participants=participants, released=found)
    elif [found] != list(self._released[number - 1].values()):
      raise _not_as_before(f"the model that round {number} released")

  def record_state(self, rounds_done: int, state: Any) -> None:
    """Records a state before it is saved.

    Args:
      rounds_done: Number of rounds that led to the state.
      state: Nested arrays, those of the noise included.

    Raises:
      errors.FieldError: If the same rounds led to another state before, with
        the same noise.
    """
    found = digest_of(state)
    before = self._states.get(rounds_done, [])
    if found in before:
      return
    # Nothing is released before the first round, so another seed does no harm.
    if before and rounds_done and self.noise_is_the_same_again:
      raise _not_as_before(f"the state after round {rounds_done}")
    self._append(rounds_done=rounds_done, state=found)

  def record_start(self, weights: Any) -> None:
    """Records the model at the start, which may be handed over like a round's.

    Args:
      weights: The model, nested arrays.
    """
    found = digest_of(weights)
    if found not in self._starts:
      self._append(start=found)

  def check_released(self, number: int, weights: Any) -> None:
    """Refuses a model that a round did not release.

    Args:
      number: Number of the round; 0 for the start.
      weights: The model, nested arrays.

    Raises:
      errors.FieldError: If the chain has no such model of this round.
    """
    known: Collection[str] = ()
    if not number:
      known = self._starts
    elif number <= self.rounds:
      known = self._released[number - 1].values()
    if digest_of(weights) not in known:
      raise _unknown("models", number)

  def record_given_away(self, files: Mapping[str, str]) -> None:
    """Records which files may be given away, before the run is finished.

    Args:
      files: Digests of the files by their names.
    """
    if files != self.given_away:
      self._append(given_away=dict(files))

  def check_state(self, rounds_done: int, state: Any, line: str) -> None:
    """Refuses a checkpoint that is not of this chain.

    Args:
      rounds_done: Number of rounds that led to the checkpoint.
      state: Its nested arrays.
      line: Digest of the line that was the last one when it was saved.

    Raises:
      errors.FieldError: If the chain has no such state or line.
    """
    known = self._states.get(rounds_done, [])
    if not self.has_line(line) or digest_of(state) not in known:
      raise _unknown("checkpoints", rounds_done)


def _open_private(path: str, flags: int) -> int:
  """Opens a file for its owner alone, whatever its mode was."""
  descriptor = os.open(path, flags, mode=0o600)
  os.fchmod(descriptor, 0o600)
  return descriptor


def _unknown(kind: str, number: int) -> errors.FieldError:
  """Returns the error for something of which the chain has no record."""
  return errors.FieldError(
    "run_dir",
    f"hold {kind} that its {NAME} knows",
    f"another one of round {number}",
    "Take another directory to start again.",
  )


def _not_as_before(what: str) -> errors.FieldError:
  """Returns the error for a round with another result than before."""
  return errors.FieldError(
    "run_dir",
    f"come to {what} before, now that it runs again with the same noise",
    "another one",
    "The same data give the same, by the same runtime on a processor of the"
    " same kind; or take another directory to start again.",
  )


def _without_varying(values: Mapping[str, Any]) -> dict[str, Any]:
  """Leaves out the values that may differ when the run goes on."""
  return {name: values[name] for name in values if name not in _VARYING}
