"""Settings of an audit, and audits of scores from anywhere."""

import dataclasses
from typing import Any

import numpy as np

from tff_fedemb import checks
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.audit import registry
from tff_fedemb.audit import scores as scores_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditConfig(config_lib.Config):
  """Settings of an audit, which bounds epsilon from below.

  Attributes:
    significance: Maximum probability that a lower bound is wrong.
    in_scores: File .npy [n], scores of canaries that were included (scores).
    out_scores: File .npy [m], scores of canaries that were not (scores).
    method: Method that bounds epsilon (scores).
    output_json: File for the bound (scores).
    num_canaries: Clients that send a random direction in place of an update,
      half of them included (run); memory for so many models is needed.
    output_dir: Directory for audit.json and audit.png (run).
  """

  significance: float = config_lib.field(0.05, above=0, below=1)
  in_scores: str | None = None
  out_scores: str | None = None
  method: str = config_lib.field("clopper_pearson", choices=registry.METHODS)
  output_json: str | None = None
  num_canaries: int = config_lib.field(500, minimum=50)
  output_dir: str | None = None

  def require(self, *names: str) -> None:
    """Refuses a configuration in which one of these fields is not given.

    Args:
      *names: Names of fields, in the order in which they are checked.

    Raises:
      errors.FieldError: Names the first one that is missing.
    """
    for name in names:
      checks.check_given(name, getattr(self, name))


def _load(name: str, path: str | None) -> np.ndarray:
  """Reads the array of a field's file.

  Args:
    name: Name of the field, for the error.
    path: A .npy file, which must be given; pickled objects are refused.

  Raises:
    errors.FieldError: If the file cannot be read as an array.
  """
  path = checks.check_given(name, path)
  try:
    with open(path, "rb") as file:
      return np.load(file, allow_pickle=False)
  except (OSError, ValueError, EOFError) as error:
    found = f"{path}: {errors.first_line(error)}"
    raise errors.FieldError(name, "be a .npy file of numbers", found) from error


def bound_files(
  config: AuditConfig, delta: float
) -> tuple[dict[str, Any], str]:
  """Bounds epsilon by scores in files.

  The scores may come from any attack. A higher score has to mean that a canary
  is more likely to have been included.

  Args:
    config: Files, method and significance.
    delta: Delta of the epsilon that is bounded.

  Returns:
    The bound, for a file and in words.

  Raises:
    errors.FieldError: If a file cannot be used, or as the method says.
  """
  scores = scores_lib.Scores(
    _load("in_scores", config.in_scores), _load("out_scores", config.out_scores)
  )
  bound = registry.bound_epsilon(
    config.method, scores, delta=delta, significance=config.significance
  )
  text = (
    f"epsilon >= {bound['epsilon_lower']:.4f} at delta = {delta:g}, with"
    f" confidence {1 - config.significance:g} ({config.method},"
    f" {bound['num_in']:,} canaries in and {bound['num_out']:,} out)\nAssumed:"
    f" {bound['assumes']}."
  )
  return bound, text
