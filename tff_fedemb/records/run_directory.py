"""The directory of a run: the names of its files, and who may use it.

A directory belongs to the spec that it was made with. A program that asks for
another spec is refused before it writes anything.
"""

from collections.abc import Collection, Mapping
import fcntl
import json
import os
import pathlib
import subprocess
from typing import Any

from tff_fedemb import errors
from tff_fedemb import whole_files

# These files have the settings of a run, its results, and its participants;
# `chain.NAME` has its rounds and their cost.
SPEC = "run.json"
SUMMARY = "summary.json"
TRACE = "participation.trace"
# A run under a deployment has these: the deployment, and a row for each round.
DEPLOYMENT = "deployment.json"
DEPLOYED_ROUNDS = "deployment.csv"
# Results on test images before and after training, with ROC curves.
EVALUATION = "evaluation.json"
CHECKPOINTS = "checkpoints"
CHECKPOINT_PREFIX = "round_"
# The folder holds only what the guarantee covers; `release` lists the files.
RELEASE = "release"
SAVED_MODEL = f"{RELEASE}/saved_model"
REPORT = f"{RELEASE}/report.html"
# A tuning has its report here, and digests of what it releases elsewhere.
TUNING = f"{RELEASE}/tuning.json"
TUNING_DIGESTS = "trials/given_away.json"
# Marks by which a budget knows a tuning from its copies.
TUNING_MARKS = "trials/marks.json"

_LOCK = ".lock"
_MOVED = "If files were moved, a link at their old place lets the run go on."


def _error(requirement: str, found: str, advice: str = "") -> errors.FieldError:
  """Returns an error about a run directory."""
  return errors.FieldError("run_dir", requirement, found, advice)


def find_code_version() -> dict[str, Any]:
  """Finds the commit that this code is at.

  Returns:
    `commit`, 40 hexadecimal digits, and `modified`, whether files were changed
    since; both `None` where there is no Git or no repository.
  """
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
  """Makes a directory that only its owner may open, or makes one so.

  Args:
    directory: The directory; its parents are made too.

  Raises:
    errors.FieldError: If it cannot be made or changed.
  """
  try:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
  except OSError as error:
    raise _error(
      "be a directory of its owner's alone", f"{directory}: {error.strerror}"
    ) from error


def write_private(path: pathlib.Path, text: str) -> None:
  """Writes ASCII text to a file that only its owner may read.

  The file appears whole or not at all, and is on the disk on return.

  Args:
    path: The file; one that exists is replaced.
    text: The text, for example a key.

  Raises:
    OSError: If the file cannot be written.
  """
  with whole_files.replacing(path) as partial:
    partial.touch(mode=0o600)
    partial.write_text(text, encoding="ascii")


def checkpointed_rounds(run_dir: str | os.PathLike[str]) -> list[int]:
  """Returns the rounds after which a run has checkpoints, in any order.

  Args:
    run_dir: Directory of the run, which need not exist.

  Returns:
    Numbers of finished rounds; empty if there are no checkpoints.
  """
  rounds = []
  for path in pathlib.Path(run_dir, CHECKPOINTS).glob(f"{CHECKPOINT_PREFIX}*"):
    number = path.name.removeprefix(CHECKPOINT_PREFIX)
    if number.isdecimal():
      rounds.append(int(number))
  return rounds


def read_json(path: pathlib.Path) -> Any:
  """Reads a JSON file of a run.

  Args:
    path: The file.

  Returns:
    Its JSON value; `None` if the file does not exist.

  Raises:
    errors.FieldError: If the file cannot be read as JSON.
  """
  try:
    return json.loads(path.read_text(encoding="utf-8"))
  except FileNotFoundError:
    return None
  except (OSError, ValueError) as error:
    raise damaged(path, error) from error


def damaged(path: pathlib.Path, error: Exception) -> errors.FieldError:
  """Returns the error for a damaged file of a run.

  Args:
    path: The file.
    error: The exception that reading it raised.

  Returns:
    A `FieldError` of `run_dir` that names the file and the exception.
  """
  return _error(
    "hold whole files of a run", f"{path}: {type(error).__name__}: {error}"
  )


class RunDirectory:
  """An open run directory, locked against a second process.

  A lock of the operating system guards it, which ends with the process. So a
  killed program leaves no lock behind.

  Attributes:
    path: The directory.
    is_new: Whether it held no run when it was opened.
  """

  def __init__(
    self,
    path: str | os.PathLike[str],
    asked: Mapping[str, Any],
    *,
    varying: Collection[tuple[str, ...]] = (),
  ):
    """Creates the directory, or opens it to go on with the run in it.

    `asked` is written to `run.json` if the directory is new, and compared with
    it if not.

    Args:
      path: The directory.
      asked: Spec of the run, nested JSON values by name.
      varying: Paths of names to values that may differ when a program goes on
        with the run.

    Raises:
      errors.FieldError: If the directory cannot be written, has files of
        something else, belongs to a run with another spec, or is in use.
    """
    self.path = pathlib.Path(path)
    try:
      self.path.mkdir(parents=True, exist_ok=True)
      found = self._read_spec()
      different = ""
      if found is not None:
        different = differ(found, asked, varying)
      if different:
        raise _error(
          "be new or of a run with the same settings",
          f"{self.path} with {different}",
          _MOVED if "='/" in different else "",
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
    self.is_new = found is None
    if self.is_new:
      self.write_json(SPEC, asked)
    (self.path / RELEASE).mkdir(exist_ok=True)

  def _read_spec(self) -> dict[str, Any] | None:
    """Reads the spec; refuses a directory that has other files and no spec.

    Returns:
      The spec; `None` for a new directory.

    Raises:
      errors.FieldError: If the directory has other files, or the spec is
        damaged.
    """
    found = self.read_json(SPEC)
    if found is not None:
      return found
    # A run that was killed before it wrote its spec leaves only these.
    left = (_LOCK, f"{whole_files.PARTIAL}.{SPEC}")
    if not all(entry.name.endswith(left) for entry in self.path.iterdir()):
      raise _error("be new or hold a run", f"{self.path} with other files")
    return None

  def read_json(self, name: str) -> Any:
    """Reads a JSON file of the run; see `run_directory.read_json`.

    Args:
      name: Path of the file in the directory.

    Returns:
      Its JSON value; `None` if the file does not exist.

    Raises:
      errors.FieldError: If the file cannot be read as JSON.
    """
    return read_json(self.path / name)

  def write_json(self, name: str, value: Any) -> None:
    """Writes a JSON file of the run, whole or not at all.

    Args:
      name: Path of the file in the directory.
      value: JSON value.

    Raises:
      ValueError: If a number is infinite or not a number.
      OSError: If the file cannot be written.
    """
    text = json.dumps(value, indent=2, allow_nan=False)
    with whole_files.replacing(self.path / name) as partial:
      partial.write_text(f"{text}\n", encoding="utf-8")

  def close(self) -> None:
    """Unlocks the directory, so that other processes can use it."""
    self._lock.close()


def differ(
  was: Mapping[str, Any],
  now: Mapping[str, Any],
  varying: Collection[tuple[str, ...]] = (),
) -> str:
  """Names the first values that differ between two specs.

  Values are compared as JSON has them, so a tuple equals a list.

  Args:
    was: Nested JSON values by name; `None` counts as missing.
    now: Others, likewise.
    varying: Paths of names to values that may differ.

  Returns:
    Up to three names with both values, and ", ..." if there are more; "" if
    nothing differs.
  """
  before = _flatten(was)
  after = _flatten(now)
  names = (before.keys() | after.keys()).difference(varying)
  different = []
  for path in sorted(names):
    one = before.get(path)
    other = after.get(path)
    if one != other:
      different.append(f"{'.'.join(path)}={one!r} (now {other!r})")
  shown = different[:3]
  if len(different) > 3:
    shown.append("...")
  return ", ".join(shown)


def _flatten(values: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
  """Returns all values but `None` by their paths of names."""
  # JSON turns tuples into lists, as in the file.
  left: list[tuple[tuple[str, ...], Any]] = [
    ((), json.loads(json.dumps(values)))
  ]
  flat = {}
  while left:
    path, value = left.pop()
    if isinstance(value, dict):
      left.extend((path + (name,), inner) for name, inner in value.items())
    elif value is not None:
      flat[path] = value
  return flat
