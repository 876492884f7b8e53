"""An aggregator and a participation of one's own, each with an option.

They are named as `module:Class`: no registry knows of them.
"""

import dataclasses
import json

import pytest

from tests.binaries import accounting
from tests.binaries import programs
from tests.privacy import gaussian
from tff_fedemb import config
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


def _train(data_dir, *others):
  return (
    *("--task=emnist", f"--data_dir={data_dir}", f"--aggregator={_OWN}"),
    *("--kept_share=0.75", "--noise_multiplier=2", "--rounds=2"),
    *("--clients_per_round=3", "--delta=0.01", "--backbone=convnet"),
    *("--batch_size=64", "--max_evaluation_images=100", *others),
  )


def _call(*arguments):
  ended = programs.call(*arguments)
  assert (ended.status, ended.errors) == (0, "")
  return ended.output


def test_they_are_planned_and_accounted_for(data_dir, tmp_path, monkeypatch):
  # `deployment_test` measures a round.
  monkeypatch.setattr(plan_lib, "_tell_round", lambda *_: iter(()))
  planned = _call("run_federated", *_train(data_dir, *_OF_PATIENT), "--dry_run")
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
  _, values = account("calibrate", "--target_epsilon=2", *own)
  solution = values["user_level"]
  assert solution["plan"]["mechanism"] == _OWN
  noise = f"--noise_multiplier={solution['value']}"
  assert account("epsilon", noise, *own)[1]["epsilon"] == solution["epsilon"]
  output, values = account("optimize", "--target_epsilon=2")
  assert {found["mechanism"] for found in values["candidates"]} == {_OWN}
  assert f"--aggregator={_OWN}" in output
  picture = tmp_path / "pictures" / "epsilon_by_rounds.png"
  _call(
    *("plot_privacy", f"--output_dir={picture.parent}", plan[0]),
    *("--participation=min_separation", "--kept_share=0.5"),
    *("--num_users=1000", "--users_per_round=100", "--noise_multipliers=9"),
  )
  assert picture.exists()


@pytest.mark.slow
def test_it_is_tuned(data_dir, tmp_path):
  space, directory = tmp_path / "space.json", tmp_path / "tuning"
  space.write_text('{"server_learning_rate": {"uniform": [0.1, 1.0]}}')
  flagfile = tmp_path / "trial.flags"
  flagfile.write_text("\n".join(_train(data_dir, "--participation=poisson")))
  _call(
    *("tune", f"--trial_flagfile={flagfile}", f"--search_space={space}"),
    # A geometric distribution of mean 1 has a single outcome.
    *(f"--output_dir={directory}", "--mean_trials=1", "--shape=1"),
  )
  report = json.loads((directory / "release/tuning.json").read_text())
  assert report["best"]["hyperparameters"].keys() == {"server_learning_rate"}
  trials = json.loads((directory / "run.json").read_text())["trials"]
  assert trials["mechanism"]["kind"] == _OWN
  assert trials["mechanism"]["kept_share"] == 0.75


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    ([f"--aggregator={_PATIENT}"], "must be a subclass of tff_fedemb.aggreg"),
    (
      [f"--aggregator={_OWN}", "--kept_share=2"],
      "--kept_share mus",
    ),
    (["--kept_share=0.5"], "Unknown command line flag 'kept_share'"),
  ],
)
def test_mistakes(arguments, message):
  ended = programs.call(
    "run_federated", "--task=emnist", "--run_dir=none", *arguments
  )
  assert ended.status == 1
  assert message in ended.errors
  assert "Traceback" not in ended.errors
