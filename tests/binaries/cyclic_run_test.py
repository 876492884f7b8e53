"""Runs whose users keep their block, or bin, after the program was killed."""

import itertools
import json

import pytest

from tests.binaries import programs
from tff_fedemb.data import participation_trace
from tff_fedemb.program import chain as chain_lib


@pytest.mark.slow
@pytest.mark.parametrize(
  ("arguments", "amplified"),
  [
    (
      ("--participation=cyclic_poisson", "--aggregator=banded")
      + ("--num_bands=2",),
      "by sampling, from a secret key",
    ),
    (
      ("--participation=balls_in_bins", "--aggregator=blt"),
      "by the secret of who is in which bin",
    ),
    (
      ("--participation=b_min_sep", "--aggregator=banded", "--num_bands=2"),
      "by sampling, from a secret key",
    ),
    (
      ("--participation=random_allocation", "--aggregator=gaussian"),
      "by sampling, from a secret key",
    ),
  ],
)
def test_killed_run_goes_on_with_the_blocks_it_drew(
  data_dir, tmp_path, arguments, amplified
):
  run_dir = tmp_path / "run"

  def start():
    return programs.launch(
      "binaries.run_federated",
      *("--task=emnist", f"--data_dir={data_dir}", f"--run_dir={run_dir}"),
      *("--clients_per_round=2", "--users_per_client=1", "--rounds=10"),
      *("--noise_multiplier=2", "--delta=0.01", "--batch_size=64"),
      *("--backbone=convnet", "--max_evaluation_images=100"),
      *("--checkpoint_every=3", "--evaluate_every=5"),
      *arguments,
      log=tmp_path / "log",
    )

  programs.kill_in_the_middle(start(), run_dir)
  assert start().wait() == 0, (tmp_path / "log").read_text()
  assert "Resuming after round 6." in (tmp_path / "log").read_text()
  with participation_trace.TraceReader(run_dir / "participation.trace") as read:
    rounds = [set(recorded.slots.tolist()) for recorded in read]
  found = json.loads((run_dir / "summary.json").read_text())
  claim = chain_lib.Chain(run_dir).ledger.participation
  if claim.name == "b_min_sep":
    # Nobody came back too soon.
    assert claim.min_separation == 2
    assert not any(one & other for one, other in itertools.pairwise(rounds))
  elif claim.name == "random_allocation":
    # Everybody is once in every pass.
    length = claim.rounds_of_pass
    for first in range(0, len(rounds) + 1 - length, length):
      users = [user for r in rounds[first : first + length] for user in r]
      assert sorted(users) == list(range(claim.num_users))
  else:
    # Nobody has changed block, nor bin.
    period = claim.period
    blocks = [set().union(*rounds[block::period]) for block in range(period)]
    assert sum(map(len, blocks)) == len(set().union(*blocks))
  privacy = found["privacy"]
  assert privacy["amplification"].startswith(amplified)
  account = programs.call("account", "epsilon", f"--run_dir={run_dir}")
  assert (account.status, account.errors) == (0, "")
  words = " ".join(account.output.split())
  assert f"epsilon = {privacy['epsilon']:.4f}" in words
  assert "the draw of all 10 rounds was replayed from checkpoints/samp" in words
