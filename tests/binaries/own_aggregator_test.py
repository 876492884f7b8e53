"""An aggregator and a participation of one's own, each with an option.

They are named as `module:Class`: no registry knows of them.
"""

import dataclasses

import pytest

from tests.accounting import gaussian
from tests.binaries import accounting
from tests.binaries import programs
from tff_fedemb import config
from tff_fedemb.mechanisms import gaussian as gaussian_mechanism
from tff_fedemb.participation import min_separation
from tff_fedemb.training import plan as plan_lib


@dataclasses.dataclass(frozen=True)
class Patient(min_separation.MinSeparation):
  """Passes over all users, of whom each misses the first ones.

  Attributes:
    of_test_passes: Passes that are missed, which changes nothing.
  """

  name = "patient"

  _: dataclasses.KW_ONLY
  of_test_passes: int = config.field(0, minimum=0)

  def sample(self, round_num, *, key):
    first = self.of_test_passes * self.rounds_per_pass
    return super().sample(round_num + first, key=key)


_OWN = "examples.own_aggregator:OwnAggregator"
_PATIENT = f"{__name__}:Patient"
_OF_PATIENT = (
  *(f"--participation={_PATIENT}", "--of_test_passes=2"),
  "--users_per_client=1",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clash(gaussian_mechanism.GaussianConfig):
  """The Gaussian mechanism.

  Attributes:
    seed: A field that a run has as well.
  """

  seed: int = config.field(7, minimum=0)


def test_a_field_has_a_flag_of_its_own():
  ended = programs.call("run_federated", f"--aggregator={__name__}:Clash")
  assert ended.status
  words = " ".join(ended.errors.split())
  assert "--aggregator must have fields with flags of their own, found" in words
  assert (
    'with --seed, a flag of another part. config.field(..., flag="' in words
  )


def test_they_are_planned_and_accounted_for(data_dir, tmp_path, monkeypatch):
  # `deployment_test` measures a round.
  monkeypatch.setattr(plan_lib, "_tell_round", lambda *_: iter(()))
  planned = programs.succeed(
    *("run_federated", "--task=emnist", f"--data_dir={data_dir}", "--dry_run"),
    *(f"--aggregator={_OWN}", "--kept_share=0.75", *_OF_PATIENT, "--rounds=2"),
    *("--noise_multiplier=2", "--clients_per_round=3", "--delta=0.01"),
  )
  ended, values = accounting.call(
    *(tmp_path, "epsilon", f"--mechanism={_OWN}", *_OF_PATIENT),
    *("--num_users=6", "--users_per_round=3", "--rounds=2", "--delta=0.01"),
    *("--noise_multiplier=2", "--accountant=gaussian"),
  )
  assert ended.status == 0, ended.errors
  # Each user is in one of the two rounds, at noise multiplier 2.
  delta = gaussian.exact_delta(values["epsilon"], 1 / 2)
  assert delta == pytest.approx(0.01, rel=1e-6)
  assert values["participation"]["kind"] == _PATIENT
  assert f"{values['epsilon']:.3g}" in planned


@pytest.mark.slow
def test_it_is_calibrated_and_compared(tmp_path):
  plan = (
    *(f"--mechanism={_OWN}", "--num_users=1000", "--users_per_round=100"),
    *("--rounds=40", "--delta=1e-4"),
  )

  def account(command, *arguments):
    ended, values = accounting.call(tmp_path, command, *plan, *arguments)
    assert ended.status == 0, ended.errors
    return ended.output, values

  own = ("--participation=poisson", "--kept_share=0.5")
  _, solution = account("calibrate", "--target_epsilon=2", *own)
  assert solution["plan"]["mechanism"] == _OWN
  noise = f"--noise_multiplier={solution['value']}"
  epsilon = solution["report"]["epsilon"]
  assert account("epsilon", noise, *own)[1]["epsilon"] == epsilon
  output, values = account("optimize", "--target_epsilon=2")
  assert {found["mechanism"] for found in values["candidates"]} == {_OWN}
  assert f"--aggregator={_OWN}" in output
