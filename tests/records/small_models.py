"""A small model with a card, to be converted."""

import os
import pathlib
from typing import Any

import tensorflow as tf

from tff_fedemb.models import backbones
from tff_fedemb.records import export
from tff_fedemb.records import model_card

SHAPE = (12, 10, 1)


def export_lenet(directory: pathlib.Path, **card: Any) -> str:
  """Exports a LeNet whose card has a threshold; returns the SavedModel's path.

  Args:
    directory: Where to.
    **card: Other fields of the card.
  """
  path = directory / "saved_model"
  tf.keras.utils.set_random_seed(0)
  backbone = backbones.create_backbone("lenet", SHAPE, embedding_dim=8)
  found = model_card.ModelCard(
    image_shape=SHAPE,
    embedding_dim=8,
    verification={
      "source": "test images",
      "at_far": {"0.01": {"threshold": 0.5, "recall": 0.25, "warning": None}},
      "left_out": {},
    },
    **card,
  )
  export.export_backbone(backbone, path, found)
  return os.fspath(path)
