"""The same training by bare Keras: one model, no clients, no server.

What somebody would write who trains this model on all data in one place: a
compiled Keras model whose `train_step` has all cores to itself. A round is as
many batches of the same size as the clients of a round have.
"""

import tensorflow as tf

from benchmarks import cases


class KerasStep:
  """The model and its round."""

  def __init__(self, case: cases.Case):
    self._case = case
    backbone = case.create_backbone(case.image_shape)
    logits = tf.keras.layers.Dense(cases.NUM_CLASSES)(backbone.output)
    self.model = tf.keras.Model(backbone.input, logits)
    self.model.compile(
      optimizer=tf.keras.optimizers.SGD(cases.CLIENT_LEARNING_RATE),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    # `train_on_batch` would make a data set of each batch.
    self._train_step = tf.function(self.model.train_step)

  def run_round(self, client_ids: list[str]) -> None:
    """Trains on the data of clients, one batch after the other."""
    size = self._case.batch_size
    for client_id in client_ids:
      images, labels = cases.create_examples(tf.constant(client_id), self._case)
      for step in range(self._case.steps):
        rows = slice(step * size, (step + 1) * size)
        self._train_step((images[rows], labels[rows]))
