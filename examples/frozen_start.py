r"""Does a start with batch statistics lose less if they stay as they are?

Networks of others have batch normalisation, which couples the images of a batch
and so cannot be trained under privacy. This pretrains `resnet_small` with batch
normalisation on made-up characters, which stand for public data, says what it
recalls on others, and writes a file that --pretrained_backbone loads with
--norm=group or frozen.
  python -m examples.frozen_start start.h5 1000 6
docs/models.md has what came of it.
"""

from collections.abc import Sequence
import sys

import numpy as np
import tensorflow as tf

from tasks.synthetic import strokes
from tff_fedemb.evaluation import verification
from tff_fedemb.models import backbones

_SHAPE, _EMBEDDING_DIM = (28, 28, 1), 128
_IMAGES, _SEED = 20, 1
# Characters from this number on are never trained on.
_FIRST_HELD_OUT, _HELD_OUT = 1_000_000, 500


def draw(first: int, num_classes: int) -> tuple[tf.Tensor, tf.Tensor]:
  """Draws images uint8 `[20 n, 28, 28, 1]` of n characters, and classes."""
  numbers = np.arange(first, first + num_classes, dtype=np.int64)
  counts = np.full(num_classes, _IMAGES, np.int32)
  images = strokes.Symbols(_SEED).draw(numbers, counts)
  return images, tf.repeat(tf.range(num_classes), _IMAGES)


def with_batch_normalization(backbone: tf.keras.Model) -> tf.keras.Model:
  """Copies a backbone, with batch normalisation in place of that of groups."""
  layers = tf.keras.layers

  def replace(layer: tf.keras.layers.Layer) -> tf.keras.layers.Layer:
    if not isinstance(layer, layers.GroupNormalization):
      return type(layer).from_config(layer.get_config())
    return layers.BatchNormalization(
      momentum=0.9,
      epsilon=layer.epsilon,
      name=layer.name.replace("_norm", "_bn"),
    )

  return tf.keras.models.clone_model(backbone, clone_function=replace)


def pretrain(
  backbone: tf.keras.Model, images: tf.Tensor, labels: tf.Tensor, *, epochs: int
) -> tf.keras.Model:
  """Trains a copy of a backbone, with batch normalisation, on classes.

  Args:
    backbone: The backbone.
    images: uint8 or float32 `[n, height, width, channels]`.
    labels: Classes from 0 on, int `[n]`.
    epochs: Number of passes over the images.

  Returns:
    The copy, from images to embeddings.
  """
  model = with_batch_normalization(backbone)
  num_classes = int(tf.reduce_max(labels)) + 1
  classifier = tf.keras.Sequential([model, tf.keras.layers.Dense(num_classes)])
  classifier.compile(
    tf.keras.optimizers.Adam(3e-3),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
  )
  classifier.fit(images, labels, batch_size=64, epochs=epochs, verbose=2)
  return model


def main(argv: Sequence[str]) -> None:
  """Pretrains a network and writes it.

  Args:
    argv: The file to write, which ends in .h5, the number of characters, and
      the number of epochs.
  """
  path, num_classes, epochs = argv
  tf.keras.utils.set_random_seed(_SEED)
  backbone = backbones.create_backbone(
    "resnet_small", _SHAPE, embedding_dim=_EMBEDDING_DIM
  )
  examples = draw(0, int(num_classes))
  model = pretrain(backbone, *examples, epochs=int(epochs))
  model.save_weights(path)
  images, labels = draw(_FIRST_HELD_OUT, _HELD_OUT)
  embeddings = model.predict(images, verbose=0)
  report = verification.evaluate_pairs(embeddings, labels.numpy())
  recall = report.recall_at_far[1e-3]
  print(f"recall at FAR 1e-3 on other characters: {recall:.3f}")


if __name__ == "__main__":
  main(sys.argv[1:])
