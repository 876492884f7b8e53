r"""Tunes hyperparameters privately: the best of a random number of trials.

  python -m binaries.tune \
    --trial_flagfile=binaries/flagfiles/omniglot_fedemb.flags \
    --trial_flags='--data_dir=DIR' \
    --search_space=binaries/flagfiles/omniglot_search.json \
    --mean_trials=10 --shape=1 --output_dir=runs/tuning

Trials are runs of run_federated with hyperparameters from --search_space and
seeds of their own. release/ has the best, its model and the epsilon of the
whole; the rest of the directory must not be released. The same command resumes
a tuning that was ended; their number is drawn once.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import pathlib
import shlex

from etils import epy

from binaries import command_line
from binaries import config_flags
from binaries import smoke
from binaries import training_flags
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.spec import spec as spec_lib
from tff_fedemb.spec import task as task_lib
from tff_fedemb.training import search_space

with epy.lazy_imports():
  from tff_fedemb.report import account_output
  from tff_fedemb.training import tuning


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialOptions(config_lib.Config):
  """The trials of a tuning.

  Attributes:
    search_space: JSON file, from fields of a run (by their flags) to
      {"values": [...]}, {"uniform": [low, high]} or {"log_uniform": [low,
      high]}.
    trial_flagfile: File of flags of run_federated for all trials.
    trial_flags: Further flags of run_federated for all trials, separated by
      spaces; each trial has a seed and a directory of its own.
    selection_users: Number of users who do not train, by whose images the best
      is chosen, as in run_federated; needed for an epsilon where validation
      images may be of users who train.
    explain: Whether to print a table of the best trial, and all that its
      epsilon rests on, in place of eight lines.
  """

  search_space: str
  trial_flagfile: str | None = None
  trial_flags: str = ""
  selection_users: int = config_lib.field(0, minimum=0)
  explain: bool = False


def read_trials(
  options: TrialOptions,
) -> tuple[spec_lib.RunSpec, task_lib.Task]:
  """Reads the spec that all trials have, and their task.

  Raises:
    errors.FieldError: If a flag cannot be read, or trials have no use for it;
      if the task's data are missing.
    errors.DataError: If the task's data are damaged.
  """
  with errors.as_field_error(
    "trial_flags", "be flags as in a shell", options.trial_flags
  ):
    words = shlex.split(options.trial_flags)
  if options.selection_users:
    words.append(f"--selection_users={options.selection_users}")
  if options.trial_flagfile:
    words.insert(0, f"--flagfile={options.trial_flagfile}")
  try:
    parser = config_flags.Parser(["trials", *words], "", expand=smoke.expand)
    # Trials train and do no more.
    parser.add(
      training_flags.RunOptions,
      skip=("dry_run", "report", "export", "export_backbone"),
    )
    flags = training_flags.SpecFlags(parser)
    parser.parse()
  except (errors.FieldError, errors.DataError) as error:
    raise errors.DataError(f"flags of the trials: {error}") from error
  with parser:
    is_smoke = bool(parser.value("smoke"))
    return training_flags.open_spec(flags, is_smoke=is_smoke)


def main(argv: Sequence[str]) -> None:
  """Runs the tuning that the flags describe, and prints its report."""
  with config_flags.Parser(argv, __doc__) as parser:
    trials = parser.add(TrialOptions)
    tuning_flags = parser.add(tuning.TuningConfig)
    parser.parse()
    config, options = tuning_flags.create(), trials.create()
    spec, task = read_trials(options)
    run = tuning.TuningRun(
      config,
      spec,
      search_space.read(options.search_space, spec),
      task=task,
    )
    tell = tuning.to_table if options.explain else account_output.tell_tuning
    print(tell(run.run(), pathlib.Path(config.run_dir)))


if __name__ == "__main__":
  command_line.run(main)
