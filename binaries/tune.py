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

import pathlib
import secrets
import shlex
import sys

from absl import flags
import numpy as np

from experiments import search_space
from experiments import trial_flags as trial_flags_lib
from experiments import tuning_output
from experiments import tuning_run
from tff_fedemb.privacy import tuning
from tff_fedemb.program import run_directory

_TRIAL = (sys.executable, "-m", "binaries.run_federated")

_OUTPUT_DIR = flags.DEFINE_string(
  "output_dir",
  None,
  "Directory of the tuning: new, or to resume the tuning in it.",
  required=True,
)
_SEARCH_SPACE = flags.DEFINE_string(
  "search_space",
  None,
  'JSON file, from names of flags to {"values": [...]}, {"uniform": [low,'
  ' high]} or {"log_uniform": [low, high]}.',
  required=True,
)
_TRIAL_FLAGFILE = flags.DEFINE_string(
  "trial_flagfile", None, "File of flags of run_federated for all trials."
)
_TRIAL_FLAGS = flags.DEFINE_string(
  "trial_flags",
  "",
  "Further flags of run_federated for all trials, separated by spaces;"
  " --seed and --run_dir are set for each trial, whatever is given.",
)
_MEAN_TRIALS = flags.DEFINE_float(
  "mean_trials",
  10.0,
  "Expected number of trials. The number itself is drawn at random and has"
  " to be: the guarantee rests on it.",
)
_SHAPE = flags.DEFINE_float(
  "shape",
  1.0,
  "Shape of that number's distribution: 0 logarithmic, 1 geometric, inf"
  " Poisson, others truncated negative binomial.",
)
_METRIC = flags.DEFINE_string(
  "metric",
  "recall_at_far_0.001",
  "What the best trial has most of on the validation split:"
  " recall_at_far_0.001, recall_at_far_0.01 or recall_at_far_0.1.",
)
_SEED = flags.DEFINE_integer(
  "seed",
  None,
  "Only for simulations that are to be reproducible: seed of the"
  " hyperparameters and of the trials' own seeds, not of their number."
  " Whoever knows it can tell which trial was the best [drawn, and kept with"
  " the other trials].",
)


def _read_trial_flags() -> tuple[str, ...]:
  try:
    from_file = []
    if _TRIAL_FLAGFILE.value:
      from_file = flags.FLAGS.read_flags_from_files(
        [f"--flagfile={_TRIAL_FLAGFILE.value}"]
      )
    return (*from_file, *shlex.split(_TRIAL_FLAGS.value))
  except flags.Error as error:
    raise command_line.UsageError(
      f"--trial_flagfile must be a file of flags, found: {error}."
    ) from error
  except ValueError as error:
    raise command_line.UsageError(
      f"--trial_flags must be flags as in a shell, found: {error}."
    ) from error


def _read_search_space() -> str:
  try:
    return pathlib.Path(_SEARCH_SPACE.value).read_text()
  except (OSError, UnicodeDecodeError) as error:
    raise command_line.UsageError(
      f"--search_space must be a JSON file, found: {error}."
    ) from error


def main() -> None:
  """Runs the tuning that the flags describe, and prints its report."""
  check = command_line.call_with_flags
  selection = check(tuning.RepeatAndSelect, _MEAN_TRIALS.value, _SHAPE.value)
  trial_flags = _read_trial_flags()
  space = _read_search_space()
  flag_types = trial_flags_lib.read_flag_types(_TRIAL)
  check(trial_flags_lib.check_trial_flags, trial_flags, flag_types)
  config = check(
    tuning_run.TuningConfig,
    selection=selection,
    space=check(search_space.SearchSpace.from_json, space, flag_types),
    trial_flags=trial_flags,
    metric=_METRIC.value,
    seed=_SEED.value,
  )
  try:
    run = tuning_run.TuningRun(
      config,
      _OUTPUT_DIR.value,
      command=_TRIAL,
      generator=np.random.default_rng(secrets.randbits(128)),
    )
  except run_directory.RunDirectoryError as error:
    raise error.renamed("output_dir") from error
  report = run.run()
  print(tuning_output.to_table(report, pathlib.Path(_OUTPUT_DIR.value)))


if __name__ == "__main__":
  command_line.run(main)
