"""Tests of the flagfiles: what they set, in full and with `--smoke`."""

import dataclasses
import itertools
import pathlib
import re

import pytest

from tests.binaries import programs
from tff_fedemb import errors
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.participation import min_separation
from tff_fedemb.spec import run_cost
from tff_fedemb.spec import spec as spec_lib

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
_OF_ALGORITHM = {
  name: {
    "algorithm": "fedavg" if name == "fedavg" else "fedemb",
    "aggregator": "tree" if name == "ftrl" else "gaussian",
    "participation": "min_separation" if name == "ftrl" else "fixed_size",
    "server_optimizer": "sgd",
    "server_momentum": 0.9,
  }
  for name in _FEDERATED
}


@pytest.fixture(name="parsed", scope="module")
def _parsed():
  """Settings by name of the flagfile, plain and small."""
  values = {}
  for program, algorithms in _PROGRAMS.items():
    for task, algorithm in itertools.product(_BACKBONES, algorithms):
      name = f"{task}_{algorithm}"
      values[name] = _read(program, name).settings()
      small = _read(program, name, "--smoke")
      values[f"{name} small"] = small.settings()
  return values


def _read(program, name, *arguments):
  path = f"--flagfile={_FLAGFILES / name}.flags"
  return programs.read_spec(program, path, *arguments)


def _check(values, **expected):
  assert {name: values[name] for name in expected} == expected


def _users_of_round(values):
  if "clients_per_round" not in values:
    return values["users_per_round"]
  return values["clients_per_round"] * values["users_per_client"]


@pytest.mark.parametrize("task", _BACKBONES)
@pytest.mark.parametrize("algorithm", [*_FEDERATED, "centralized"])
def test_a_benchmark_is_of_the_published_size_or_small(parsed, task, algorithm):
  whole = parsed[f"{task}_{algorithm}"]
  small = parsed[f"{task}_{algorithm} small"]
  for values, num_users in zip((whole, small), _NUM_USERS[task], strict=True):
    _check(values, task=task, data_dir=None, on_bad_example="fail")
    assert _users_of_round(values) <= num_users
    if algorithm != "centralized":
      _check(values, **_OF_ALGORITHM[algorithm])
      # A head of one class learns nothing.
      assert task != "digiface" or values["users_per_client"] >= 4
  _check(
    whole,
    rounds=200 if task == "emnist" else 800,
    backbone=_BACKBONES[task],
    image_size=None,
    embedding_dim=128,
    # All pairs of all held-out images.
    max_held_out_images=0,
  )
  if algorithm != "centralized":
    # On EMNIST the noise is the run's own.
    noise = {"fedemb": 0.02, "fedavg": 0.015, "ftrl": 0.26}[algorithm]
    _check(
      whole,
      noise_multiplier=0.62 if task == "emnist" else noise,
      extrapolated_num_users=10_000_000,
      extrapolated_cohort_factor=1 if task == "emnist" else 64,
      extrapolated_delta=1e-7,
    )
    # DP-FedAvg's head has the learning rate of its backbone.
    assert (whole["head_lr_scale"] == 1) == (algorithm == "fedavg")
  # The smoke run is small enough to end in two minutes.
  assert small["rounds"] <= 30 and _users_of_round(small) <= 64
  assert 0 < small["evaluate_every"] < small["rounds"]
  if task == "emnist":
    _check(small, backbone="lenet", image_size=None)
  else:
    _check(small, backbone="resnet_small", augmentation="none")
    assert small["image_size"] <= 48


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
    # Such a run prints this beside its own cost, by RDP.
    spec = _read("run_federated", f"digiface_{algorithm}")
    run = run_cost.resolve_cost(spec, _NUM_USERS["digiface"][0])
    found = spec.extrapolation.extrapolate(run.plan_ledger())
    reading = "user_level" if algorithm == "ftrl" else "authors"
    printed = {"fedavg": "5.62", "fedemb": "3.90", "ftrl": "9.67"}[algorithm]
    by_rdp = getattr(found, reading).epsilon_by_accountant["rdp"]
    assert f"{by_rdp:.2f}" == printed
  # As many users of a round as its federated runs have: 64 x 32.
  _check(
    parsed["digiface_centralized"],
    client_learning_rate=0.05,
    client_optimizer="sgd",
    users_per_round=2_048,
    task_variant="all",
  )


def test_delta_of_an_extrapolation():
  config = spec_lib.ExtrapolationConfig
  ledger = ledger_lib.create_ledger(
    min_separation.MinSeparation(100, 10).for_rounds(10),
    composition.Noise(1.0),
    10,
    delta=1e-3,
  )
  # 10,000,000 ** -1.1, and of a hundredth of the users.
  for num_users, delta in ((10_000_000, 2e-8), (100_000, 3e-6)):
    extrapolation = dataclasses.replace(
      config(), extrapolated_num_users=num_users
    )
    # A delta that the number of users gives is not stored.
    assert extrapolation.extrapolated_delta is None
    assert extrapolation.extrapolate(ledger).delta == delta
  assert config(extrapolated_num_users=0).extrapolate(ledger) is None
  with pytest.raises(
    errors.FieldError,
    match=r"extrapolated_delta must be at most 1 / extrapolated_num_users = "
    r"1e-07, found 1\.1e-07",
  ):
    config(extrapolated_delta=1.1e-7)


@pytest.mark.parametrize(
  ("name", "num_users", "epsilon"),
  [
    ("handwriting_fedemb", 100_000, 3.824),
    ("handwriting_fedavg", 100_000, 3.824),
    ("demo", 20_000, 2.562),
  ],
)
def test_runs_themselves_cost_little(name, num_users, epsilon):
  spec = _read("run_federated", name)
  _check(
    spec.settings(),
    num_users=num_users,
    users_per_client=1,
    delta=None,
    extrapolated_num_users=0,
  )
  ledger = run_cost.resolve_cost(spec, num_users).plan_ledger()
  assert ledger.report().epsilon == pytest.approx(epsilon, abs=1e-3)


def test_no_flag_is_set_twice_in_a_file():
  for path in (_REPOSITORY / _FLAGFILES).rglob("*.flags"):
    names = re.findall(r"^--(?!flagfile=)(\w+)", path.read_text(), re.MULTILINE)
    assert len(names) == len(set(names)), path
