"""Tests of what a plan tells of privacy before there is a run."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

import tff_fedemb as fe
from tff_fedemb import errors
from tff_fedemb.run import experiment
from tff_fedemb.training import plan as plan_lib

_SCRIPT = """
import sys
import numpy as np
import binaries.account
import tff_fedemb as fe

images = np.zeros([40, 8, 8, 1], np.uint8)
task = fe.ArrayTask(
  images, np.arange(40) % 4, np.arange(40), test=(images, np.arange(40) % 4)
)
spec = fe.RunSpec(
  task=task,
  participation=fe.Poisson(users_per_round=4),
  mechanism=fe.Gaussian(noise_multiplier=1.0),
  rounds=3,
)
# Also where no task that comes along is known yet.
kind = spec.to_json()["task"]["kind"]
assert kind == "tff_fedemb.run.array_task:ArrayTask", kind
plan = fe.plan(spec, measure=False)
assert 0 < plan.epsilon < 10, plan.epsilon
slow = {"jax", "tensorflow", "tensorflow_federated"} & {*sys.modules}
assert not slow, slow
print(plan)
"""


@pytest.mark.parametrize("num_users", [1, 5])
def test_users_who_are_too_few(num_users):
  images, labels = np.zeros([10, 8, 8, 1], np.uint8), np.arange(10) % 2
  spec = fe.RunSpec(
    task=fe.ArrayTask(
      images, labels, np.arange(10) % num_users, test=(images, labels)
    ),
    participation=fe.Poisson(users_per_round=1),
    mechanism=fe.Gaussian(noise_multiplier=1.0),
    rounds=2,
  )
  if num_users > 1:
    told = str(fe.plan(spec, measure=False))
    assert "warning: 5 users are too few to hide one: with a probab" in told
    return
  with pytest.raises(errors.FieldError, match="users must be two or more wh"):
    fe.plan(spec, measure=False)
  # Without noise nothing is promised.
  no_noise = dataclasses.replace(spec, mechanism=fe.ClipOnly())
  assert fe.plan(no_noise, measure=False).epsilon == np.inf


def _spec(**options):
  # The demo's settings, of which RDP says 3.239.
  return fe.RunSpec(
    task=fe.create_task("handwriting", num_users=20_000),
    participation=fe.Poisson(users_per_round=512),
    mechanism=fe.Gaussian(noise_multiplier=0.8, clip_norm=0.1),
    rounds=60,
    **options,
  )


def test_a_plan_has_the_figures_and_tells_them():
  told = plan_lib.tell_cost(experiment.resolve_cost(_spec(), 20_000))
  assert told.startswith(
    "These settings cost epsilon = 2.562 at delta = 2e-05 in 60 rounds"
  )
  plan = fe.plan(_spec(), measure=False)
  assert plan.epsilon == pytest.approx(2.562, abs=1e-3)
  assert (plan.delta, plan.noise_on_mean) == (2e-5, 0.8 / 512)
  assert "<- this run" in str(plan)


def test_a_plan_of_arrays_and_an_account_need_no_tensorflow():
  done = subprocess.run(
    [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=False
  )
  assert done.returncode == 0, done.stderr
  assert "Privacy of 3 rounds for 40 users" in done.stdout


def test_a_plan_measures_a_round():
  images = np.zeros([40, 12, 12, 1], np.uint8)
  labels = np.arange(40) % 4
  task = fe.ArrayTask(images, labels, np.arange(40) // 4, test=(images, labels))
  plan = fe.plan(
    fe.RunSpec(
      task=task, participation=fe.FixedSize(users_per_round=2), rounds=3
    )
  )
  assert plan.epsilon == np.inf
  assert "measured on 2 of them" in str(plan)
