r"""Tunes hyperparameters privately: the best of a random number of trials.

  python -m binaries.tune \
    --trial_flagfile=binaries/flagfiles/omniglot_dp.flags \
    --trial_flags='--algorithm=fedemb --data_dir=DIR' \
    --search_space=binaries/flagfiles/omniglot_search.json \
    --mean_trials=10 --shape=1 --output_dir=runs/tuning

Trials are runs of run_federated with hyperparameters from --search_space and
seeds of their own. tuning.json has the best and the epsilon of the whole, and
best/ its model; the rest of the directory must not be released. The same
command resumes a tuning that was ended; their number is drawn once.
"""

from experiments import command_line  # isort: skip

import dataclasses
import pathlib
import secrets
import shlex
import sys

from absl import flags
import numpy as np

from experiments import config_flags
from experiments import search_space
from experiments import trial_flags as trial_flags_lib
from experiments import tuning_output
from experiments import tuning_run
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.privacy import tuning
from tff_fedemb.program import run_directory

_TRIAL = (sys.executable, "-m", "binaries.run_federated")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Settings(config_lib.Config):
  """What to tune, how, and where to.

  Attributes:
    output_dir: Directory of the tuning: new, or to resume the tuning in it.
    search_space: JSON file, from names of flags to {"values": [...]},
      {"uniform": [low, high]} or {"log_uniform": [low, high]}.
    trial_flagfile: File of flags of run_federated for all trials.
    trial_flags: Further flags of run_federated for all trials, separated by
      spaces; --seed and --run_dir are set for each trial, whatever is given.
    mean_trials: Expected number of trials. The number itself is drawn at random
      and has to be, the guarantee rests on it.
    shape: Shape of that number's distribution, 0 logarithmic, 1 geometric, inf
      Poisson, others truncated negative binomial.
    metric: What the best trial has most of on the validation split,
      recall_at_far_0.001, recall_at_far_0.01 or recall_at_far_0.1.
    seed: Only for simulations that are to be reproducible, seed of the
      hyperparameters and of the trials' own seeds, not of their number. Whoever
      knows it can tell which trial was the best [drawn, and kept with the other
      trials].
  """

  output_dir: str
  search_space: str
  trial_flagfile: str | None = None
  trial_flags: str = ""
  mean_trials: float = config_lib.field(10.0, minimum=1)
  shape: float = config_lib.field(1.0, minimum=0, maximum=float("inf"))
  metric: str = "recall_at_far_0.001"
  seed: int | None = config_lib.field(None, minimum=0)

  def read_trial_flags(self) -> tuple[str, ...]:
    """The flags of all trials, those of the file first."""
    try:
      from_file = []
      if self.trial_flagfile:
        from_file = flags.FLAGS.read_flags_from_files(
          [f"--flagfile={self.trial_flagfile}"]
        )
      return (*from_file, *shlex.split(self.trial_flags))
    except flags.Error as error:
      raise errors.FieldError(
        "trial_flagfile", "be a file of flags", error
      ) from error
    except ValueError as error:
      raise errors.FieldError(
        "trial_flags", "be flags as in a shell", error
      ) from error

  def read_search_space(self) -> str:
    """The text of the search space."""
    try:
      return pathlib.Path(self.search_space).read_text()
    except (OSError, UnicodeDecodeError) as error:
      raise errors.FieldError(
        "search_space", "be a JSON file", error
      ) from error


_SETTINGS = config_flags.ConfigFlags(_Settings)


def main() -> None:
  """Runs the tuning that the flags describe, and prints its report."""
  settings = _SETTINGS.create()
  trial_flags = settings.read_trial_flags()
  space = settings.read_search_space()
  flag_types = trial_flags_lib.read_flag_types(_TRIAL)
  trial_flags_lib.check_trial_flags(trial_flags, flag_types)
  config = tuning_run.TuningConfig(
    selection=tuning.RepeatAndSelect(settings.mean_trials, settings.shape),
    space=search_space.SearchSpace.from_json(space, flag_types),
    trial_flags=trial_flags,
    metric=settings.metric,
    seed=settings.seed,
  )
  try:
    run = tuning_run.TuningRun(
      config,
      settings.output_dir,
      command=_TRIAL,
      generator=np.random.default_rng(secrets.randbits(128)),
    )
  except run_directory.RunDirectoryError as error:
    raise error.renamed("output_dir") from error
  report = run.run()
  print(tuning_output.to_table(report, pathlib.Path(settings.output_dir)))


if __name__ == "__main__":
  command_line.run(main)
