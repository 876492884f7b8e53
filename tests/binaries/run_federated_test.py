"""Tests of the training program from the command line."""

import json
import os
import re

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from tests.binaries import programs
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import min_separation
from tff_fedemb.planning import planning
from tff_fedemb.records import chain as chain_lib
from tff_fedemb.records import model_card
from tff_fedemb.records import sampling_key
from tff_fedemb.training import plan as plan_lib

_TINY = (
  "--task=emnist",
  "--clients_per_round=2",
  "--users_per_client=2",
  "--rounds=10",
  "--batch_size=64",
  "--evaluate_every=5",
  "--checkpoint_every=3",
  "--max_evaluation_images=100",
  "--seed=3",
)


def _flags(data_dir, run_dir, *more):
  return (*_TINY, f"--data_dir={data_dir}", f"--run_dir={run_dir}", *more)


def _succeed(*directories_and_more):
  """Runs the program in this process, which has to end well."""
  return programs.succeed("run_federated", *_flags(*directories_and_more))


def _weights(run_dir):
  model = tf.saved_model.load(os.fspath(run_dir / "release/saved_model"))
  return model.signatures["serving_default"](
    images=tf.random.stateless_uniform([5, 28, 28, 1], (1, 2), 0, 255)
  )["embeddings"].numpy()


def _participants(run_dir):
  return list(pd.read_csv(run_dir / "metrics.csv")["participants/checksum"])


@pytest.mark.slow
def test_killed_run_resumes_as_if_nothing_had_happened(data_dir, tmp_path):
  whole, killed = tmp_path / "whole", tmp_path / "killed"
  noiseless = ("--aggregator=clip_only", "--sampling_seed=1")
  flags = _flags(data_dir, killed, *noiseless)
  programs.train_and_kill(*flags, run_dir=killed)
  assert not (killed / "summary.json").exists()
  assert "Resuming after round 6." in programs.succeed("run_federated", *flags)
  _succeed(data_dir, whole, *noiseless)
  np.testing.assert_allclose(_weights(whole), _weights(killed), atol=1e-5)
  assert len(_participants(whole)) == 10
  assert _participants(whole) == _participants(killed)
  summaries = [
    json.loads((path / "summary.json").read_text()) for path in (whole, killed)
  ]
  assert summaries[0]["privacy"] == summaries[1]["privacy"]
  assert summaries[0]["recall_at_far"] == summaries[1]["recall_at_far"]


_SECURE = (
  *("--aggregator=secure_gaussian", "--noise_multiplier=1", "--rounds=2"),
  *("--delta=0.01", "--extrapolated_num_users=0", "--report"),
)


@pytest.fixture(name="secure", scope="module")
def _secure(data_dir, tmp_path_factory):
  """A run of secure sums, whose cohorts anyone can draw, and what it said."""
  run_dir = tmp_path_factory.mktemp("secure") / "run"
  return run_dir, _succeed(data_dir, run_dir, *_SECURE, "--sampling_seed=7")


@pytest.mark.slow
def test_a_sampling_seed_is_loud_and_amplifies_nothing(data_dir, secure):
  run_dir, output = secure
  assert "WARNING: sampling_seed makes it known who" in output
  assert not (run_dir / "checkpoints" / sampling_key.NAME).exists()
  privacy = json.loads((run_dir / "summary.json").read_text())["privacy"]
  assert privacy["amplification"].startswith("none: who is drawn when is taken")
  # The cost includes what the last digits of the noise may tell.
  assert 0 < privacy["arithmetic_epsilon"] < 2e-4
  assert privacy["epsilon_with_secret_sampling"] > 0
  assert f"epsilon = {privacy['epsilon']:.4g} at delta" in output
  claim = fixed_size.FixedSize(6, 4, users_per_client=2)
  ledger = chain_lib.Chain(run_dir).ledger
  assert ledger.participation == claim.with_known_schedule()
  explained = programs.succeed(
    "account", "epsilon", f"--run_dir={run_dir}", "--explain"
  )
  assert f"epsilon = {privacy['epsilon']:.4f}" in explained
  assert "replayed from sampling_seed" in " ".join(explained.split())
  # The same directory without the flag is another run.
  flags = _flags(data_dir, run_dir, *_SECURE)
  refused = programs.call("run_federated", *flags)
  assert "sampling_seed=7 (now None)" in refused.errors


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (
      "--deployment=phones",
      "--users_per_client must be 1 with participation check_ins",
    ),
    (
      "--deployment=phone --users_per_client=1",
      "--deployment must be ideal, phones, harsh or a YAML file",
    ),
    ("--task=", "--task must be"),
    ("--clip_norm=-1", "--clip_norm must be positive, found -1.0"),
    ("--clients_per_round=9", "at most the number of users, 6"),
    (
      "--aggregator=blt --noise_multiplier=1",
      "--participation must be min_separation with mechanism blt",
    ),
    (
      "--participation=cyclic_poisson --aggregator=banded --noise_multiplier=1",
      "--period must be given with participation cyclic_poisson",
    ),
    ("--run_dir=/proc/run", "--run_dir must be a directory that can be"),
  ],
)
def test_mistake_is_one_line_and_nothing_is_written(
  data_dir, tmp_path, arguments, message
):
  flags = _flags(data_dir, tmp_path / "run", *arguments.split())
  ended = programs.call("run_federated", *flags)
  programs.check_refused(ended, "")
  assert not ended.output
  assert message in ended.errors
  assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_secure_sums_are_told_as_simulated(secure):
  run_dir, output = secure
  words = "simulated, not cryptographic"
  assert f"secure sums, {words}: epsilon does not rest" in output
  assert f"secure sums, {words}:" in (run_dir / "report.html").read_text()
  summary = json.loads((run_dir / "summary.json").read_text())
  card = model_card.read(run_dir / "release/saved_model" / model_card.PATH)
  assert summary["secure_sums"] == card.training["secure_sums"] == words
  # As of the aggregator gaussian: z = 1, two users of a client, two rounds.
  assert chain_lib.Chain(run_dir).ledger.round_sum.noise_multiplier == 1.0
  assert 0 < summary["privacy"]["epsilon"] < 10


def test_a_dry_run_tells_and_writes_nothing(data_dir, tmp_path, monkeypatch):
  # `deployment_test` measures a round.
  monkeypatch.setattr(plan_lib, "_tell_round", lambda *_: iter(()))
  before = sorted(data_dir.parent.rglob("*"))
  output = programs.succeed(
    "run_federated",
    *(*_TINY[:4], f"--data_dir={data_dir}", f"--cache_dir={tmp_path}"),
    *("--noise_multiplier=0.5", "--dry_run"),
    # This one has an exact accountant, which is the quickest.
    "--participation=min_separation",
  )
  assert "emnist: 6 users (a writer), 36 training classes" in output
  for noise in (0.5, 1.0, 4.0):
    ledger = ledger_lib.Ledger(
      min_separation.MinSeparation(6, 4, users_per_client=2).for_rounds(10),
      delta=planning.default_delta(6),
      accountants=("gaussian",),
      # As the run will have it, of LeNet.
      round_sum=composition.RoundSum(1.0, noise, 453_632),
    ).with_rounds(composition.Noise(noise), 10)
    assert f" {ledger.tightest_epsilon():.4g}" in output
  needed = re.search(r"costs\s+epsilon = ([\d.]+) with [\d,]+ users", output)
  assert 8 < float(needed[1]) <= 9
  assert sorted(data_dir.parent.rglob("*")) == before
  assert not list(tmp_path.iterdir())
