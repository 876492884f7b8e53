"""Runs that are killed and go on with the users that were to take part.

Whatever keeps users apart, such as a block, a bin or a pass, is kept: `account`
draws all rounds once more. This process, which has TensorFlow already, goes on
with the run of another that was killed.
"""

import json

import pytest

from tests.binaries import deployment_test
from tests.binaries import programs

_SECRET = "by sampling, from a secret key"


@pytest.mark.slow
@pytest.mark.parametrize(
  ("arguments", "amplified"),
  [
    ("cyclic_poisson --aggregator=banded --num_bands=2", _SECRET),
    ("balls_in_bins --aggregator=blt", "by the secret of who is in which bin"),
    ("random_allocation --aggregator=gaussian", _SECRET),
    (None, "none: who is there"),
  ],
)
def test_killed_run_goes_on_with_the_users_it_drew(
  data_dir, tmp_path, arguments, amplified
):
  run_dir, own = tmp_path / "run", tmp_path / "own.yaml"
  # Six users, two of them in each of ten rounds.
  own.write_text(
    deployment_test.OWN.replace("participations: 3", "participations: 9")
  )
  more = [f"--deployment={own}"]
  source = "deployment.json: the same users"
  if arguments is not None:
    source = "checkpoints/samp"
    more = f"--participation={arguments}".split()
  flags = (
    *("--task=emnist", f"--data_dir={data_dir}", f"--run_dir={run_dir}"),
    *("--clients_per_round=2", "--users_per_client=1", "--rounds=10"),
    *("--noise_multiplier=2", "--delta=0.01", "--batch_size=64"),
    *("--backbone=convnet", "--max_evaluation_images=100"),
    *("--checkpoint_every=3", "--evaluate_every=5"),
    "--extrapolated_num_users=0",
    *more,
  )
  programs.train_and_kill(*flags, run_dir=run_dir)
  resumed = programs.succeed("run_federated", *flags)
  assert "Resuming after round 6." in resumed
  privacy = json.loads((run_dir / "summary.json").read_text())["privacy"]
  assert privacy["amplification"].startswith(amplified)
  explained = programs.succeed(
    "account", "epsilon", "--explain", f"--run_dir={run_dir}"
  )
  words = " ".join(explained.split())
  assert f"epsilon = {privacy['epsilon']:.4f}" in words
  assert f"the draw of all 10 rounds was replayed from {source}" in words
