"""Tests of the flagfiles: what they set, in full and with `--smoke`."""

import itertools
import pathlib
import re

import dp_accounting
from dp_accounting.pld import pld_privacy_accountant
import pytest

from tests.binaries import programs
from tff_fedemb import errors
from tff_fedemb.participation import registry as participations
from tff_fedemb.privacy import composition
from tff_fedemb.run import experiment
from tff_fedemb.run import extrapolation
from tff_fedemb.strategies import tree

_REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
_FLAGFILES = pathlib.Path("binaries/flagfiles")
_BACKBONES = {
  "emnist": "lenet",
  "gld": "mobilenet_v2",
  "inaturalist": "mobilenet_v2",
  "digiface": "resnet50",
}
_FEDERATED = ("fedemb", "fedavg", "ftrl")
_PROGRAMS = {"run_federated": _FEDERATED, "run_centralized": ("centralized",)}
# Users as published, of DigiFace's identities those for training; and of the
# data that --smoke makes.
_NUM_USERS = {
  "emnist": (3_400, 200),
  "gld": (1_262, 100),
  "inaturalist": (9_275, 100),
  "digiface": (88_087, 59),
}
# What is left of a run that ends in two minutes.
_LARGEST_SMOKE = {"rounds": 30, "image_size": 48, "users": 64}


@pytest.fixture(name="parsed", scope="module")
def _parsed():
  """Settings by name of the flagfile, plain and small."""
  values = {}
  for program, algorithms in _PROGRAMS.items():
    for task, algorithm in itertools.product(_BACKBONES, algorithms):
      name = f"{task}_{algorithm}"
      values[name] = _parse(program, name)
      values[f"{name} small"] = _parse(program, name, "--smoke")
  return values


def _parse(program, name, *arguments):
  path = f"--flagfile={_FLAGFILES / name}.flags"
  return programs.read_spec(program, path, *arguments).settings()


def _check(values, **expected):
  assert {name: values[name] for name in expected} == expected


@pytest.mark.parametrize("task", _BACKBONES)
@pytest.mark.parametrize("algorithm", [*_FEDERATED, "centralized"])
def test_flagfile_parses_and_is_of_its_benchmark(parsed, task, algorithm):
  for size in ("", " small"):
    values = parsed[f"{task}_{algorithm}{size}"]
    _check(
      values,
      task=task,
      data_dir=None,
      pretrained_backbone=None,
      trainable=None,
      on_bad_example="fail",
    )
    if algorithm != "centralized":
      is_ftrl = algorithm == "ftrl"
      _check(
        values,
        algorithm="fedavg" if algorithm == "fedavg" else "fedemb",
        aggregator="tree" if is_ftrl else "gaussian",
        participation="min_separation" if is_ftrl else "fixed_size",
        server_optimizer="sgd",
        server_momentum=0.9,
      )


@pytest.mark.parametrize("task", _BACKBONES)
@pytest.mark.parametrize("algorithm", [*_FEDERATED, "centralized"])
def test_whole_runs_are_of_the_published_size(parsed, task, algorithm):
  values = parsed[f"{task}_{algorithm}"]
  _check(
    values,
    rounds=200 if task == "emnist" else 800,
    backbone=_BACKBONES[task],
    image_size=None,
    embedding_dim=128,
    # All pairs of all held-out images.
    max_held_out_images=0,
  )
  if algorithm == "centralized":
    assert values["users_per_round"] <= _NUM_USERS[task][0]
    return
  # On EMNIST the noise is the run's own.
  noise_multiplier, factor = {"fedemb": 0.02, "fedavg": 0.015, "ftrl": 0.26}, 64
  _check(
    values,
    noise_multiplier=0.62 if task == "emnist" else noise_multiplier[algorithm],
    extrapolated_num_users=10_000_000,
    extrapolated_cohort_factor=1 if task == "emnist" else factor,
    extrapolated_delta=1e-7,
  )
  # DP-FedAvg's head has the learning rate of its backbone.
  assert (values["head_lr_scale"] == 1) == (algorithm == "fedavg")


def test_emnist_is_the_published_command(parsed):
  # The README of `dp_visual_embeddings` in google-research/federated.
  _check(
    parsed["emnist_fedemb"],
    clients_per_round=32,
    users_per_client=8,
    local_epochs=8,
    batch_size=32,
    max_examples_per_client=2048,
    client_optimizer="sgdm",
    client_momentum=0.9,
    client_learning_rate=0.005,
    head_lr_scale=100,
    head_warmup_steps=0,
    head_imprint_steps=0,
    server_learning_rate=0.02,
    clip_norm=1,
    noise_multiplier=0.62,
  )


def _extrapolate(settings, *, num_users):
  """What a run with these settings prints beside its own cost, by RDP."""
  config = extrapolation.ExtrapolationConfig(
    extrapolated_num_users=settings["extrapolated_num_users"],
    cohort_factor=settings["extrapolated_cohort_factor"],
    extrapolated_delta=settings["extrapolated_delta"],
  )
  claim = participations.create_participation(
    settings["participation"],
    num_users=num_users,
    users_per_round=64 * 32,
    users_per_client=32,
  )
  mechanism = settings["aggregator"]
  strategy = tree.TreeStrategy() if mechanism == "tree" else None
  return config.extrapolate(
    settings["rounds"],
    noise=composition.Noise(settings["noise_multiplier"], strategy),
    participation=claim,
    accountants=("rdp",),
  )


def test_digiface_is_the_headline_table(parsed):
  # Xu et al. 2023, the table on DigiFace with ResNet-50.
  for algorithm, server_learning_rate in {
    "fedavg": 0.5,
    "fedemb": 0.2,
    "ftrl": 0.2,
  }.items():
    _check(
      parsed[f"digiface_{algorithm}"],
      server_learning_rate=server_learning_rate,
      clients_per_round=64,
      users_per_client=32,
      task_variant="all",
    )
    settings = parsed[f"digiface_{algorithm}"]
    found = _extrapolate(settings, num_users=_NUM_USERS["digiface"][0])
    reading = "user_level" if algorithm == "ftrl" else "authors"
    printed = {"fedavg": "5.62", "fedemb": "3.90", "ftrl": "9.67"}[algorithm]
    assert f"{getattr(found, reading).epsilon:.2f}" == printed
  # As many users of a round as its federated runs have: 64 x 32.
  _check(
    parsed["digiface_centralized"],
    client_learning_rate=0.05,
    client_optimizer="sgd",
    users_per_round=2_048,
    task_variant="all",
  )


def test_delta_of_an_extrapolation():
  config = extrapolation.ExtrapolationConfig
  assert config().extrapolated_delta == 2e-8
  assert config(extrapolated_num_users=0).extrapolated_delta is None
  with pytest.raises(
    errors.FieldError,
    match=r"extrapolated_delta must be at most 1 / extrapolated_num_users = "
    r"1e-07, found 1\.1e-07",
  ):
    config(extrapolated_delta=1.1e-7)


@pytest.mark.parametrize("task", _BACKBONES)
@pytest.mark.parametrize("algorithm", [*_FEDERATED, "centralized"])
def test_smoke_is_small(parsed, task, algorithm):
  values = parsed[f"{task}_{algorithm} small"]
  assert values["rounds"] <= _LARGEST_SMOKE["rounds"]
  assert 0 < values["evaluate_every"] < values["rounds"]
  if algorithm == "centralized":
    users = values["users_per_round"]
  else:
    users = values["clients_per_round"] * values["users_per_client"]
  assert users <= min(_LARGEST_SMOKE["users"], _NUM_USERS[task][1])
  if task == "emnist":
    # Of one size only.
    _check(values, backbone="lenet", image_size=None)
    return
  assert values["image_size"] <= _LARGEST_SMOKE["image_size"]
  _check(values, backbone="resnet_small", augmentation="none")
  _check(
    values,
    task_variant=(
      "72_images"
      if task == "digiface"
      else parsed[f"{task}_{algorithm}"]["task_variant"]
    ),
  )


@pytest.mark.parametrize("size", ["", " small"])
@pytest.mark.parametrize("task", _BACKBONES)
@pytest.mark.parametrize("algorithm", _FEDERATED)
def test_cohorts_can_be_drawn_from_the_users(parsed, task, algorithm, size):
  values = parsed[f"{task}_{algorithm}{size}"]
  num_users = _NUM_USERS[task][bool(size)]
  clients = values["clients_per_round"]
  claim = participations.create_participation(
    values["participation"],
    num_users=num_users,
    users_per_round=clients * values["users_per_client"],
    users_per_client=values["users_per_client"],
    min_separation=values.get("min_separation"),
  )
  sizes = [len(client) for client in claim.sample(0, key=1)]
  assert len(sizes) == clients
  # Those of a pass over all users share them out evenly.
  smallest = values["users_per_client"] // (2 if algorithm == "ftrl" else 1)
  assert smallest <= min(sizes)
  assert max(sizes) <= values["users_per_client"]
  if task == "digiface":
    # A head of one class learns nothing.
    assert min(sizes) > 1


@pytest.mark.parametrize("name", ["handwriting_fedemb", "handwriting_fedavg"])
def test_runs_themselves_cost_little(name):
  values, num_users = _parse("run_federated", name), 100_000
  _check(
    values,
    task="handwriting",
    num_users=num_users,
    participation="poisson",
    users_per_client=1,
    aggregator="gaussian",
    delta=None,
    extrapolated_num_users=0,
  )
  # One user a client, and flips of coins: adding a user moves the sum by the
  # clip norm.
  accountant = pld_privacy_accountant.PLDAccountant(
    value_discretization_interval=1e-3
  )
  accountant.compose(
    dp_accounting.PoissonSampledDpEvent(
      values["clients_per_round"] / num_users,
      dp_accounting.GaussianDpEvent(values["noise_multiplier"]),
    ),
    values["rounds"],
  )
  assert accountant.get_epsilon(num_users**-1.1) <= 4.0


def test_the_demo_itself_costs_little():
  values = _parse("run_federated", "demo")
  _check(
    values,
    num_users=20_000,
    participation="random_allocation",
    users_per_client=1,
    aggregator="banded",
    num_bands=4,
    period=4,
    delta=None,
    extrapolated_num_users=0,
  )
  path = f"--flagfile={_FLAGFILES / 'demo.flags'}"
  found = experiment.resolve_cost(
    programs.read_spec("run_federated", path), 20_000
  )
  ledger = found.create_ledger().with_rounds(
    found.mechanism.round_event, values["rounds"]
  )
  assert ledger.participation.rounds_of_pass == 40
  assert ledger.epsilon() == pytest.approx(2.562, abs=1e-3)


def test_no_flag_is_set_twice_in_a_file():
  for path in (_REPOSITORY / _FLAGFILES).rglob("*.flags"):
    names = re.findall(r"^--(?!flagfile=)(\w+)", path.read_text(), re.MULTILINE)
    assert len(names) == len(set(names)), path
