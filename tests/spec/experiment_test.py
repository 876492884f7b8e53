"""Tests of what a run settles once the number of its users is known."""

import dataclasses

import numpy as np
import pytest
import yaml

from tests.spec import specs
from tff_fedemb import errors
from tff_fedemb.algorithms import fedemb
from tff_fedemb.algorithms import local_training
from tff_fedemb.participation import check_ins
from tff_fedemb.participation import min_separation
from tff_fedemb.spec import array_task
from tff_fedemb.spec import deployment
from tff_fedemb.spec import experiment


@pytest.mark.parametrize(
  ("options", "message"),
  [
    (
      {"max_participations": 1},
      "max_participations must not be given without a d",
    ),
    ({"users_per_round": 10.5}, "users_per_round must be an integer"),
  ],
)
def test_draws_that_no_run_can_have_are_refused(options, message):
  claim = min_separation.MinSeparation(**{"users_per_round": 10} | options)
  with pytest.raises(errors.FieldError, match=message):
    experiment.resolve_cost(specs.create(participation=claim), 100)


@pytest.mark.parametrize(
  ("asked", "of_server", "found"),
  [(None, None, None), (None, 3, 3), (2, 3, 2), (2, None, 2)],
)
def test_a_server_enforces_the_rounds_of_a_user(
  tmp_path, asked, of_server, found
):
  path = tmp_path / "own.yaml"
  values = {
    "description": "Own.",
    "availability": {"time_zones": {0: 1}, "base": 0.5, "amplitude": 0.2},
    "compute": {"milliseconds_per_example": 5},
    "server": {"deadline_minutes": 5, "max_participations": of_server},
  }
  path.write_text(yaml.safe_dump(values))
  spec = specs.create(
    participation=check_ins.CheckIns(
      users_per_round=10, max_participations=asked
    ),
    deployment=deployment.DeploymentConfig(deployment=str(path)),
  )
  claim = experiment.resolve_cost(spec, 100).participation
  assert claim.max_participations == found


def test_images_that_are_not_square_have_no_turned_classes(monkeypatch):
  images, labels = np.zeros([4, 8, 6, 1], np.uint8), np.arange(4) % 2
  users = [0, 0, 1, 1]
  task = array_task.ArrayTask(images, labels, users, test=(images, labels))
  local = local_training.LocalTraining(turned_classes=True)
  spec = dataclasses.replace(
    specs.create(task), algorithm=fedemb.FedEmb(local=local)
  )
  monkeypatch.setattr(
    experiment, "_measure_backbone", lambda *_: pytest.fail("it was built")
  )
  with pytest.raises(
    errors.FieldError,
    match=r"turned_classes must be False .* not square, found images of 8x6",
  ):
    experiment.resolve(spec, task.create())
