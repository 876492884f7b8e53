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

import pathlib
import secrets
import sys

import numpy as np

from binaries import command_line
from binaries import config_flags
from tff_fedemb.training import search_space
from tff_fedemb.training import tuning as tuning_run

_TRIAL = (sys.executable, "-m", "binaries.run_federated")


_CONFIG = config_flags.ConfigFlags(
  tuning_run.TuningConfig, rename={"run_dir": "output_dir"}
)


def main() -> None:
  """Runs the tuning that the flags describe, and prints its report."""
  config = _CONFIG.create()
  words = search_space.read_trial_flags(
    config.trial_flagfile, config.trial_flags
  )
  flag_types = search_space.read_flag_types(_TRIAL, words)
  search_space.check_trial_flags(words, flag_types)
  run = tuning_run.TuningRun(
    config,
    search_space.read(config.search_space, flag_types),
    words,
    command=_TRIAL,
    generator=np.random.default_rng(secrets.randbits(128)),
  )
  print(tuning_run.to_table(run.run(), pathlib.Path(config.run_dir)))


if __name__ == "__main__":
  command_line.run(main)
