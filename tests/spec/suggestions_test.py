"""Tests of the settings that are chosen by counting."""

import types

import numpy as np
import pytest

from tff_fedemb import errors
from tff_fedemb.models import starts
from tff_fedemb.participation import poisson
from tff_fedemb.spec import array_task
from tff_fedemb.spec import suggestions


def _choose(num_users, alone, *, federated=True, side=64, **given):
  # No more of a task than may be looked at: no image, and no number of them.
  task = types.SimpleNamespace(
    train_users=range(num_users),
    one_class_per_user=alone,
    num_train_classes=47,
    image_shape=(side, side, 3),
    default_backbone="lenet" if side <= 64 else "mobilenet_v2",
  )
  chosen = suggestions.choose(task, given, federated=federated)
  told = suggestions.tell(task, chosen, given)
  starts_well = {"pretrained_backbone"} & {*chosen, *given}
  warned = num_users < 200 and not starts_well
  assert told.count("\n") == len(chosen) + warned
  assert ("from random weights" in told) == warned
  return {name: choice.value for name, choice in chosen.items()}


_LENET = {
  "backbone": "lenet",
  "clip_norm": 0.3,
  "client_learning_rate": 0.05,
  "head_lr_scale": 10.0,
  "batch_size": 16,
}


@pytest.mark.parametrize(
  ("num_users", "alone", "expected"),
  [
    # (users_per_client, clients_per_round, rounds, noise_multiplier)
    (210, True, (16, 4, 40, 0.005)),
    # 200 / 4 / 4 = 12.5 clients; 12 * 0.00125
    (200, False, (4, 12, 40, 0.015)),
    # 100,000 / 4 / 16 = 1,562.5 clients; 1,562 * 0.00125 = 1.95
    (100_000, True, (16, 1562, 40, 2.0)),
    (10_000_000, False, (4, 2048, 40, 2.6)),
    # 12 / 4 = 3 users of a client, of which there are 4.
    (12, True, (3, 4, 40, 0.005)),
    (1, False, (1, 1, 40, 0.0013)),
  ],
)
def test_cohort_rounds_and_noise(num_users, alone, expected):
  names = ("users_per_client", "clients_per_round", "rounds")
  names += ("noise_multiplier",)
  # Few users of this size of an embedding do not start from what is shipped.
  chosen = _choose(num_users, alone, embedding_dim=64)
  assert chosen == _LENET | dict(zip(names, expected, strict=True))


@pytest.mark.parametrize("alone", [True, False])
def test_a_cohort_is_never_more_than_the_users(alone):
  for num_users in range(2, 500):
    chosen = _choose(num_users, alone)
    users = chosen["users_per_client"] * chosen["clients_per_round"]
    assert 1 <= users <= num_users


def test_what_is_given_wins_and_is_followed():
  chosen = _choose(200, False, clients_per_round=20, clip_norm=1.0)
  assert not {"clients_per_round", "clip_norm"} & set(chosen)
  assert chosen["noise_multiplier"] == 0.025  # 20 * 0.00125
  chosen = _choose(200, False, backbone="resnet_small")
  assert chosen["client_learning_rate"] == 0.02
  # Noise of the kinds that the constant is for.
  assert "noise_multiplier" not in _choose(200, False, aggregator="tree")
  assert "noise_multiplier" not in _choose(200, False, noise_multiplier=0.0)


def test_pooled_data_and_large_images():
  chosen = _choose(20, True, federated=False, side=224, embedding_dim=64)
  assert chosen == {
    "backbone": "mobilenet_v2",
    "users_per_round": 20,
    "rounds": 20,
    "client_learning_rate": 0.02,
    "head_lr_scale": 1.0,
    "batch_size": 16,
  }


def test_few_users_start_from_the_weights_that_are_shipped():
  chosen = _choose(199, True, side=48)
  assert chosen == _choose(199, True, side=112)
  assert chosen["backbone"] == "conv4_48"
  assert chosen["pretrained_backbone"] == str(starts.PATH)
  assert chosen["rounds"] == 10
  assert chosen["client_learning_rate"] == 0.005
  assert chosen["export_start_share"] == 0.5
  for given in ({"backbone": "lenet"}, {"pretrained_backbone": "mine.h5"}):
    assert "pretrained_backbone" not in _choose(40, True, side=48, **given)
  more = _choose(200, True, side=48)
  assert more["backbone"] == "lenet"
  assert "export_start_share" not in more


def _task(num_users=24):
  images = np.zeros([4 * num_users, 8, 8, 1], np.uint8)
  labels = np.arange(len(images)) % 6
  users = np.arange(len(images)) // 4
  return array_task.ArrayTask(images, labels, users, test=(images, labels))


def test_a_notebook_gets_what_programs_choose():
  task = _task()
  spec = suggestions.suggest(task)
  chosen = suggestions.choose(task.create(), {}, federated=True)
  found = spec.settings()
  assert {name: found[name] for name in chosen} == {
    name: choice.value for name, choice in chosen.items()
  }
  users = spec.participation.users_per_round
  assert users == found["clients_per_round"] * found["users_per_client"]


def test_a_setting_of_ones_own_wins_in_a_notebook():
  given = {
    "participation": "poisson",
    "aggregator": "banded",
    "num_bands": 3,
    "clients_per_round": 5,
    "users_per_client": 2,
    "rounds": 7,
    "client_learning_rate": 0.5,
  }
  spec = suggestions.suggest(_task(), **given)
  assert spec.participation.users_per_round == 10
  assert given.items() <= spec.settings().items()


def test_devices_report_by_themselves():
  spec = suggestions.suggest(_task(), deployment="phones")
  claim = spec.participation
  assert (claim.name, claim.users_per_client) == ("check_ins", 1)
  # At least 8 clients, of 24 users.
  assert claim.users_per_round == 8
  assert spec.deployment.deployment == "phones"


def test_pooled_data_get_settings_too():
  spec = suggestions.suggest(_task(), algorithm="centralized")
  assert (spec.participation, spec.mechanism) == (None, None)
  # Those of a start that few users have.
  found = spec.settings()
  assert (found["users_per_round"], found["rounds"]) == (24, 20)


@pytest.mark.parametrize(
  ("given", "message"),
  [
    ({"round": 7}, "round must be the name of a"),
    ({"rounds": -1}, "rounds must be an integer"),
    # No clients would have no noise.
    ({"clients_per_round": 0}, "clients_per_round must be an integer of at le"),
    ({"users_per_client": "2"}, "users_per_client must be an integer of at le"),
    ({"users_per_round": 8}, "users_per_round must not be given: it is client"),
    # The rules would not follow the fields of an object.
    (
      {"participation": poisson.Poisson(users_per_round=8)},
      "participation must be a name; give its fields .*, found Poisson",
    ),
  ],
)
def test_settings_that_cannot_be_followed_are_refused(given, message):
  with pytest.raises(errors.FieldError, match=message):
    suggestions.suggest(_task(), **given)


def test_there_are_no_rules_for_vectors():
  vectors, labels = np.zeros([8, 3], np.float32), np.arange(8) % 2
  task = array_task.ArrayTask(vectors, labels, labels, test=(vectors, labels))
  with pytest.raises(errors.FieldError, match=r"have images.* shape \[3\]"):
    suggestions.suggest(task)
