"""What a tuning costs the budget that it shares, copies included.

Two programs may go on with copies of a tuning's directory, or one with a backup
of it. Each then runs trials and releases the best of its own. So a program
leaves a mark, random bytes, before the first trial that it runs and after the
last one. Of a tuning and its copy, each has a mark that the other lacks, and
both are charged. Marks tell how often programs began, and not how many trials
there are.
"""

from collections.abc import Mapping
import dataclasses
import os
import secrets
from typing import Any

from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.planning import budget
from tff_fedemb.records import run_directory


@dataclasses.dataclass
class TuningCharge:
  """The charge of one tuning to its budget, if it shares one.

  Privacy:
    As `budget_composition.compose`, for the tuning as a whole.

  Attributes:
    path: File of the budget; None for none.
    directory: Open directory of the tuning.
    trial: Ledger of a trial.
    options: Further arguments of `budget.charge`.
  """

  path: str | None
  directory: run_directory.RunDirectory
  trial: ledger_lib.Ledger
  options: Mapping[str, Any]
  _has_begun: bool = dataclasses.field(default=False, init=False)

  def write(self, *, with_mark: bool = False) -> None:
    """Charges the tuning, in place of its earlier charge.

    Args:
      with_mark: Whether to leave a mark first.

    Raises:
      errors.FieldError: As `budget.charge`.
    """
    if self.path is None:
      return
    marks = self.directory.read_json(run_directory.TUNING_MARKS) or []
    if with_mark:
      marks.append(secrets.token_hex(32))
      self.directory.write_json(run_directory.TUNING_MARKS, marks)
    budget.charge(
      self.path,
      self.trial,
      run_dir=os.path.abspath(self.directory.path),
      # A charge has lines by round: all marks are in the first one.
      lines=[marks],
      **self.options,
    )

  def begin_trial(self) -> None:
    """Leaves a mark before the first trial that this program runs.

    Raises:
      errors.FieldError: As `write`.
    """
    if not self._has_begun:
      self.write(with_mark=True)
      self._has_begun = True

  def end(self) -> None:
    """Leaves a mark after the last trial, before anything is released.

    Raises:
      errors.FieldError: As `write`.
    """
    if self._has_begun:
      self.write(with_mark=True)
