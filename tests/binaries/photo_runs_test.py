"""Tests of whole runs on photos: pretraining, frozen layers, damaged files."""

import json

import numpy as np
import pytest

from tests.binaries import programs
from tests.data import photo_files
from tff_fedemb.models import backbones
from tff_fedemb.models import pretrained
from tff_fedemb.records import chain as chain_lib
from tff_fedemb.records import model_card
from tff_fedemb.spec import spec as spec_lib

_SIDE = 28
_USERS = {f"author{number}": [0, 1, 4, 9] for number in range(6)}
# Classes 4 and 9 are for validation.
_TEST_LABELS = [0, 1, 4, 9] * 4
_SHARED = (
  "--task=gld",
  f"--image_size={_SIDE}",
  "--backbone=lenet",
  "--batch_size=8",
  "--client_learning_rate=0.01",
  "--evaluate_every=0",
  "--checkpoint_every=1",
  "--seed=3",
)
# All users take part in every round.
_CENTRALIZED = (*_SHARED, "--users_per_round=6", "--rounds=1")
_FEDERATED = (
  *_SHARED,
  "--clients_per_round=2",
  "--users_per_client=3",
  "--rounds=2",
  "--extrapolated_num_users=0",
)
# Parameters of backbone lenet: its embedding layer, and its 5 x 5 convolutions.
_NUM_EMBEDDING = (7 * 7 * 64 + 1) * 128
_NUM_OTHERS = (5 * 5 * 3 + 1) * 32 + (5 * 5 * 32 + 1) * 64


def _write_data(directory):
  folder = directory / "gld160k"
  photo_files.write_users(folder / "train", _USERS)
  photo_files.write(
    folder / "test.tfRecord",
    [
      # Two of a class are of one sight, for a recall between 0 and 1.
      (
        photo_files.encode(
          1_000 + label if i < 8 else 2_000 + i, size=(20 + i, 16)
        ),
        label,
      )
      for i, label in enumerate(_TEST_LABELS)
    ],
  )
  return folder


def _damage_inside(folder):
  """A photo that begins and ends as a JPEG does."""
  contents = [photo_files.encode(i) for i in range(4)]
  contents[2] = contents[2][:100] + contents[2][-2:]
  photo_files.write(
    folder / "train" / "author3", zip(contents, _USERS["author3"], strict=True)
  )


def _call(program, directory, data, run_dir, *arguments):
  return programs.call(
    program,
    f"--data_dir={directory / data}",
    f"--cache_dir={directory / 'cache'}",
    f"--run_dir={run_dir}",
    *arguments,
  )


def _read_summary(run_dir):
  return json.loads((run_dir / "summary.json").read_text())


@pytest.fixture(name="directory", scope="module")
def _directory(tmp_path_factory):
  directory = tmp_path_factory.mktemp("photos")
  _write_data(directory / "whole")
  _damage_inside(_write_data(directory / "damaged"))
  return directory


def _load_weights(path):
  """A SavedModel's weights by the names of the backbone's variables."""
  backbone = backbones.create_backbone("lenet", (_SIDE, _SIDE, 3))
  pretrained.load_pretrained(backbone, path)
  return {
    variable.name: weight
    for variable, weight in zip(
      backbone.weights, backbone.get_weights(), strict=True
    )
  }


@pytest.mark.slow
def test_private_training_starts_where_pretraining_ended(directory):
  public = directory / "public"
  backbone = f"--export_backbone={directory / 'backbone'}"
  ended = _call(
    *("run_centralized", directory, "whole", public, *_CENTRALIZED, backbone)
  )
  assert ended.status == 0, ended.errors
  private = _call(
    *("run_federated", directory, "whole", directory / "private", *_FEDERATED),
    f"--pretrained_backbone={directory / 'backbone'}",
    "--trainable=embedding",
  )
  assert private.status == 0, private.errors
  before = _read_summary(public)
  summary = _read_summary(directory / "private")
  assert summary["recall_at_far_pretrained"] == before["recall_at_far"]
  assert 0 < before["recall_at_far"]["0.1"] < 1
  assert summary["evaluation_untrained"] == before["evaluation_untrained"]
  assert summary["num_private_parameters"] == _NUM_EMBEDDING
  assert summary["num_frozen_parameters"] == _NUM_OTHERS
  recall = summary["recall_at_far_pretrained"]["0.001"]
  assert f"; pretrained {recall:.4f}" in private.output
  weights = _load_weights(directory / "backbone")
  record = summary["pretrained"]
  assert record["sha256"] == chain_lib.digest_of([*weights.values()])
  assert record["num_loaded_parameters"] == _NUM_EMBEDDING + _NUM_OTHERS
  kept = (directory / "private" / "pretrained.json").read_text()
  assert record == json.loads(kept)
  model = directory / "private/release/saved_model"
  # The test images are of users who train.
  assert model_card.read(model / model_card.PATH).verification is None
  after = _load_weights(model)
  for name, weight in weights.items():
    is_same = np.array_equal(after[name], weight)
    assert is_same != name.startswith("embedding/"), name
  assert summary["data"]["num_bad_examples"] == 0


@pytest.mark.slow
def test_damaged_photo_is_named_and_then_skipped(directory):
  run_dir = directory / "damaged_run"
  ended = _call("run_federated", directory, "damaged", run_dir, *_FEDERATED)
  assert ended.status == 1
  named = "train/author3 record 2: not an image that can be decoded"
  assert ended.errors.splitlines()[-1].startswith(
    f"error: data must be readable, found 1 bad example: {named}."
    " on_bad_example=skip leaves out"
  )
  # The same run goes on without it.
  ended = _call(
    "run_federated",
    directory,
    "damaged",
    run_dir,
    *_FEDERATED,
    "--on_bad_example=skip",
  )
  assert ended.status == 0, ended.errors
  summary = _read_summary(run_dir)
  assert summary["data"]["num_bad_examples"] == 1
  assert summary["data"]["bad_examples"] == [named]
  assert (summary["num_users"], summary["rounds"]) == (6, 2)
  assert f"left out 1 bad example: {named}." in ended.output


@pytest.mark.slow
def test_photos_need_nothing_but_a_directory(tmp_path):
  for user in range(6):
    for label in "abcdefghij":
      folder = tmp_path / "data" / f"user {user}" / label
      folder.mkdir(parents=True)
      for number in range(2):
        content = photo_files.encode(100 * user + ord(label) + number)
        (folder / f"{number}.jpg").write_bytes(content)
  output = programs.succeed(
    "run_federated",
    "--task=photos",
    f"--data_dir={tmp_path / 'data'}",
    f"--cache_dir={tmp_path / 'cache'}",
    f"--run_dir={tmp_path / 'run'}",
    # Less than what is chosen, for a test.
    "--rounds=1",
    "--image_size=28",
    "--max_held_out_images=20",
    "--extrapolated_num_users=0",
  )
  assert "Chosen for 6 users, 6 classes, by counting alone" in output
  assert "--clients_per_round=6  (so that" in output
  assert "--rounds=" not in output
  assert "No privacy (epsilon = " in output
  assert "Evaluating on 20 of 24 test images, drawn at rand" in output
  assert "(20 test images of 24): " in " ".join(output.split())
  settings = spec_lib.read(tmp_path / "run").settings()
  assert settings["users_per_client"] == 1
  assert settings["noise_multiplier"] == 0.0075
  assert settings["rounds"] == 1
