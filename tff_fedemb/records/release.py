"""Files of a run: which may be given away, and what each of them reveals.

The guarantee covers the files below `release/` and no others. A file that is
not in the table here counts as not covered.
"""

from collections.abc import Mapping
import fnmatch
import math
import os
import pathlib
from typing import Any

from tff_fedemb import errors
from tff_fedemb.records import chain as chain_lib
from tff_fedemb.records import model_card
from tff_fedemb.records import run_directory

COVERED = "covered"
NOT_COVERED = "not covered"
# The guarantee holds only if nobody else can read these files.
SECRET = "secret"
PUBLIC = "public"

NOTE = "METRICS_ARE_NOT_PRIVATE.txt"
NOTE_TEXT = """\
The privacy guarantee covers release/ alone. All other files of this directory
are NOT covered, and some of them are secret: do not publish them for real
users.
"""

_HELD_OUT = "recall of held-out images, without noise"
_UPDATES = "losses, norms and counts of users' updates, without noise"
_KINDS = {
  COVERED: {
    "release/saved_model/saved_model.pb": "the network",
    "release/saved_model/variables/variables.*": "the weights",
    f"release/saved_model/{model_card.PATH}": (
      "the guarantee; thresholds by images of users who do not train"
    ),
    run_directory.REPORT: (
      "the guarantee; recall of images of users who do not train"
    ),
    run_directory.TUNING: "the best trial, and the cost of all trials",
  },
  SECRET: {
    "checkpoints/sampling_key": "who takes part in which round",
    "checkpoints/*": "the keys of correlated noise",
    "participation.trace": "who took part in which round",
    "rounds.jsonl": "digests by which a guess of who took part can be tested",
    "trials/*": "every trial, and how many there are",
  },
  NOT_COVERED: {
    "metrics.csv": _UPDATES,
    "tensorboard/*": _UPDATES,
    "plots/overview.png": _UPDATES,
    "plots/deployment.png": "which devices reported; recall, without noise",
    "summary.json": f"{_HELD_OUT}; counts of users and of who took part",
    "evaluation.json": _HELD_OUT,
    "pretrained.json": f"{_HELD_OUT}, before training",
    "recall_of_best.json": _HELD_OUT,
    "report.html": f"{_HELD_OUT}, some of these images; losses; settings",
    "tflite/*": f"the model, covered; in the .json beside it {_HELD_OUT}",
    "run.json": "settings, some of which follow from the list of users; paths",
    "deployment.json": "who took part, to anyone who simulates it again",
    "deployment.csv": "which devices reported, and when",
  },
  PUBLIC: {
    NOTE: "what is not covered",
    ".lock": "nothing",
  },
}


def say(epsilon: float) -> str:
  """Says which files of a run the guarantee covers.

  Args:
    epsilon: Epsilon of the run, infinity included.

  Returns:
    A clause that begins in lower case and has no full stop.
  """
  if epsilon == math.inf:
    return "no guarantee covers this run, release/ included (epsilon = inf)"
  return (
    f"the guarantee (epsilon = {epsilon:.4g}) covers release/, and nothing"
    " outside of it"
  )


def _find(path: str) -> tuple[str, str, str]:
  """Finds a file in the table.

  Args:
    path: Path in the run's directory, with slashes.

  Returns:
    The file's name, or its folder's where the table has the whole folder; its
    kind; and what it reveals. A file that the table lacks is not covered.
  """
  for kind, table in _KINDS.items():
    for pattern, reveals in table.items():
      if fnmatch.fnmatchcase(path, pattern):
        is_folder = pattern.endswith("/*")
        return pattern[:-1] if is_folder else path, kind, reveals
  return path, NOT_COVERED, "unknown: a run writes no such file"


def _find_files(root: pathlib.Path) -> dict[str, pathlib.Path]:
  """Finds all files and links below a directory, by their names in it."""
  found = {}
  for path in sorted(root.rglob("*")):
    if path.is_symlink() or path.is_file():
      found[path.relative_to(root).as_posix()] = path
  return found


def digest_files(run_dir: str | os.PathLike[str]) -> dict[str, str]:
  """Returns digests of the files that may be given away, by name.

  Args:
    run_dir: Directory of a run or a tuning. A link to nothing counts as an
      empty file.

  Returns:
    SHA-256 digests of 64 hexadecimal digits, by the path in the directory.
  """
  digests = {}
  for name, path in _find_files(pathlib.Path(run_dir)).items():
    _, kind, _ = _find(name)
    if kind != COVERED:
      continue
    content = b""
    if path.is_file():
      content = path.read_bytes()
    digests[name] = chain_lib.digest(content)
  return digests


def _say_checked(found: Mapping[str, Any]) -> str:
  """Says which figures were recomputed, and which files were compared."""
  same = (
    f"The {found['num_files']} files to be given away are as they were left"
  )
  if "rounds" not in found:
    return f"{same}: {run_directory.TUNING_DIGESTS} has their digests."
  return (
    f"Recomputed from {chain_lib.NAME} and {run_directory.TRACE}: epsilon ="
    f" {float(found['epsilon']):.6g} at delta = {found['delta']:g}"
    f" ({found['accountant']}) after {found['rounds']:,} rounds, as the card"
    f" and {run_directory.SUMMARY} say. {same}: the last line of"
    f" {chain_lib.NAME} has their digests."
  )


def tell(
  run_dir: str | os.PathLike[str],
  checked: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], str]:
  """Lists what the files of a run, or of a tuning, reveal.

  The JSON values are `covered` (the guarantee in words), `checked` (as given)
  and `files`, a list with `path`, `kind` and `reveals` of each file or folder.

  Args:
    run_dir: Directory of the run or the tuning.
    checked: Result of `account.check_release`; `None` before the end.

  Returns:
    JSON values by name, and the same in words.

  Raises:
    errors.FieldError: If the directory has no run.
  """
  root = pathlib.Path(run_dir)
  if not (root / run_directory.SPEC).exists():
    raise errors.FieldError("run_dir", "hold a run", f"{root} without")
  files = _find_files(root)
  covered = "nothing is there to be given away yet"
  if checked is not None:
    covered = "no model is there to be given away"
    if f"{run_directory.SAVED_MODEL}/{model_card.PATH}" in files:
      covered = say(float(checked["epsilon"]))
  lines = [f"{covered[0].upper()}{covered[1:]}."]
  if checked is not None:
    lines.append(_say_checked(checked))
  lines.append("")
  # Files of one folder can have one entry in common.
  entries = dict.fromkeys(map(_find, files))
  width = max(len(path) for path, _, _ in entries)
  listed = []
  for path, kind, reveals in entries:
    lines.append(f"{path:<{width}}  {kind:<11}  {reveals}")
    listed.append({"path": path, "kind": kind, "reveals": reveals})
  values = {"covered": covered, "checked": checked, "files": listed}
  return values, "\n".join(lines)
