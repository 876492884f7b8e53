"""The directory of a run: what it holds, and to whom it belongs.

A directory belongs to the spec that it was made with. A program with another
one is turned away before it writes anything.
"""

from collections.abc import Collection, Iterator, Mapping
import fcntl
import json
import os
import pathlib
import subprocess
from typing import Any

from tff_fedemb import errors
from tff_fedemb import whole_files

# The files say what a run was made with, what came out, and who took part;
# `chain.NAME` says what happened and what it cost.
SPEC = "run.json"
SUMMARY = "summary.json"
TRACE = "participation.trace"
# Under a deployment: what it is, and what became of each of its rounds.
DEPLOYMENT = "deployment.json"
DEPLOYED_ROUNDS = "deployment.csv"
# The file has results on test images before and after training, ROC curves too.
EVALUATION = "evaluation.json"
CHECKPOINTS = "checkpoints"
CHECKPOINT_PREFIX = "round_"
# The folder holds what the guarantee covers, and no more: `release` lists it.
RELEASE = "release"
SAVED_MODEL = f"{RELEASE}/saved_model"
REPORT = f"{RELEASE}/report.html"
# A tuning has this file, and elsewhere digests of what it releases.
TUNING = f"{RELEASE}/tuning.json"
TUNING_DIGESTS = "trials/given_away.json"

_LOCK = ".lock"


def _error(requirement: str, found: str) -> errors.FieldError:
  return errors.FieldError("run_dir", requirement, found)


def find_code_version() -> dict[str, Any]:
  """The commit that this code is at, as far as it is known."""
  root = pathlib.Path(__file__).resolve().parents[2]

  repository = [f"--git-dir={root / '.git'}", f"--work-tree={root}"]
  describe = ["describe", "--always", "--exclude=*", "--abbrev=40", "--dirty"]
  try:
    found = subprocess.run(
      ["git"] + repository + describe,
      capture_output=True,
      text=True,
      check=True,
    )
  except (OSError, subprocess.CalledProcessError):
    return {"commit": None, "modified": None}
  commit, dirty, _ = found.stdout.strip().partition("-dirty")
  return {"commit": commit, "modified": bool(dirty)}


def make_private(directory: pathlib.Path) -> None:
  """Makes a directory that only its owner may look into, if it is not one."""
  try:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
  except OSError as error:
    raise _error(
      "be a directory of its owner's alone", f"{directory}: {error.strerror}"
    ) from error


def checkpointed_rounds(run_dir: str | os.PathLike[str]) -> list[int]:
  """Rounds after which a run, which need not be there, has checkpoints."""
  names = (
    path.name.removeprefix(CHECKPOINT_PREFIX)
    for path in pathlib.Path(run_dir, CHECKPOINTS).glob(f"{CHECKPOINT_PREFIX}*")
  )
  return [int(name) for name in names if name.isdecimal()]


def read_json(path: pathlib.Path) -> Any:
  """Reads a JSON file of a run, `None` if there is none.

  Raises:
    errors.FieldError: If it is damaged.
  """
  try:
    return json.loads(path.read_text(encoding="utf-8"))
  except FileNotFoundError:
    return None
  except (OSError, ValueError) as error:
    raise damaged(path, error) from error


def damaged(path: pathlib.Path, error: Exception) -> errors.FieldError:
  """Returns what to say of a file of a run that led to an error."""
  return _error(
    "hold whole files of a run", f"{path}: {type(error).__name__}: {error}"
  )


class RunDirectory:
  """An open run directory, locked against a second process."""

  def __init__(
    self,
    path: str | os.PathLike[str],
    asked: Mapping[str, Any],
    *,
    varying: Collection[tuple[str, ...]] = (),
  ):
    """Creates the directory, or opens it to go on with the run in it.

    Args:
      path: The directory.
      asked: Spec of the run, JSON values below names.
      varying: Names that lead to values which a program that goes on with the
        run may change.

    Raises:
      errors.FieldError: If the directory cannot be written, holds something
        else, belongs to a run that was asked for something else, or is in use.
    """
    self.path = pathlib.Path(path)
    asked = json.loads(json.dumps(dict(asked)))
    try:
      self.path.mkdir(parents=True, exist_ok=True)
      found = self._read_spec()
      if found is not None and (different := differ(found, asked, varying)):
        raise _error(
          "be new or of a run with the same settings",
          f"{self.path} with {different}",
        )
      self._lock = open(self.path / _LOCK, "a")  # noqa: SIM115
    except OSError as error:
      raise _error(
        "be a directory that can be written", f"{self.path}: {error.strerror}"
      ) from error
    try:
      fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
      raise _error(
        "not be in use", f"{self.path} held by another process"
      ) from error
    if found is None:
      self.write_json(SPEC, asked)
    (self.path / RELEASE).mkdir(exist_ok=True)

  def _read_spec(self) -> dict[str, Any] | None:
    found = self.read_json(SPEC)
    if found is not None:
      return found
    # A run that ended before its settings were written left nothing else.
    left = (_LOCK, f"{whole_files.PARTIAL}.{SPEC}")
    if not all(entry.name.endswith(left) for entry in self.path.iterdir()):
      raise _error("be new or hold a run", f"{self.path} with other files")
    return None

  def read_json(self, name: str) -> Any:
    """Reads a JSON file of the run, `None` if there is none."""
    return read_json(self.path / name)

  def write_json(self, name: str, value: Any) -> None:
    """Writes a JSON file, whole or not at all."""
    text = json.dumps(value, indent=2, allow_nan=False)
    with whole_files.replacing(self.path / name) as partial:
      partial.write_text(f"{text}\n", encoding="utf-8")

  def close(self) -> None:
    """Lets other processes use the directory."""
    self._lock.close()


def differ(
  was: Mapping[str, Any],
  now: Mapping[str, Any],
  varying: Collection[tuple[str, ...]] = (),
) -> str:
  """Names the first values that differ, as JSON has them; "" if none does.

  Args:
    was: JSON values below names.
    now: Others; what is `None` is as if it were not there.
    varying: Names that lead to values which may differ.
  """
  # JSON makes lists of tuples, as in the file.
  before = dict(_flatten(json.loads(json.dumps(was))))
  after = dict(_flatten(json.loads(json.dumps(now))))
  different = []
  for names in sorted((before.keys() | after.keys()).difference(varying)):
    one = before.get(names)
    other = after.get(names)
    if one != other:
      different.append(f"{'.'.join(names)}={one!r} (now {other!r})")
  return ", ".join(different[:3]) + (", ..." if len(different) > 3 else "")


def _flatten(
  values: Mapping[str, Any],
  names: tuple[str, ...] = (),
) -> Iterator[tuple[tuple[str, ...], Any]]:
  """Yields the values below names that are given, with all their names."""
  for name, value in values.items():
    if isinstance(value, Mapping):
      yield from _flatten(value, names + (name,))
    elif value is not None:
      yield names + (name,), value
