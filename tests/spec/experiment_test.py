"""Tests of what a run settles once its task is at hand."""

import dataclasses

import numpy as np
import pytest

from tests.spec import specs
from tff_fedemb import errors
from tff_fedemb.algorithms import fedemb
from tff_fedemb.algorithms import local_training
from tff_fedemb.spec import array_task
from tff_fedemb.spec import experiment


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
