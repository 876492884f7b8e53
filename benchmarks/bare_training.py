"""The same round with no framework, and the same steps by bare Keras.

What somebody would write who needs this one round and nothing else: a model
per thread, a function that trains it on one client, a sum, noise, a step of the
server. It knows the size of the head beforehand, accounts for no privacy,
reports no metrics, and checks nothing.
"""

from concurrent import futures
import queue

import tensorflow as tf

from benchmarks import cases
from benchmarks import fedemb_round


class _Client:
  """A model and the function that trains it, for one thread."""

  def __init__(self, case: cases.Case):
    self.backbone = fedemb_round.create_backbone(case)
    self._variables = self.backbone.trainable_variables
    self._case = case
    self._head = tf.Variable(
      tf.zeros([fedemb_round.NUM_CLASSES, fedemb_round.EMBEDDING_DIM]),
      trainable=False,
    )
    self._bias = tf.Variable(
      tf.zeros([fedemb_round.NUM_CLASSES]), trainable=False
    )

  @tf.function
  def train(self, weights, client_id):
    """Returns the clipped difference that a client's data make."""
    for variable, value in zip(self._variables, weights, strict=True):
      variable.assign(value)
    seed = tf.stack([tf.strings.to_number(client_id, tf.int64), 0])
    self._head.assign(
      tf.random.stateless_normal(self._head.shape, seed, stddev=0.01)
    )
    self._bias.assign(tf.zeros_like(self._bias))
    images, labels = fedemb_round.create_examples(client_id, self._case)
    size = self._case.batch_size
    for step in tf.range(self._case.steps):
      rows = slice(step * size, (step + 1) * size)
      with tf.GradientTape() as tape:
        tape.watch([self._head, self._bias])
        embeddings = self.backbone(
          tf.cast(images[rows], tf.float32), training=True
        )
        logits = tf.matmul(embeddings, self._head, transpose_b=True)
        loss = tf.reduce_mean(
          tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels[rows], logits + self._bias
          )
        )
      variables = [*self._variables, self._head, self._bias]
      gradients = tape.gradient(loss, variables)
      rate = fedemb_round.CLIENT_LEARNING_RATE
      head_rate = rate * fedemb_round.HEAD_LR_SCALE
      for variable, gradient in zip(variables, gradients, strict=True):
        is_head = variable is self._head or variable is self._bias
        variable.assign_sub((head_rate if is_head else rate) * gradient)
    delta = [
      before - after
      for before, after in zip(weights, self._variables, strict=True)
    ]
    clipped, _ = tf.clip_by_global_norm(delta, fedemb_round.CLIP_NORM)
    return clipped


class BareLoop:
  """The state of the training and its round."""

  def __init__(self, case: cases.Case, *, num_threads: int):
    self._case = case
    self._clients: queue.SimpleQueue[_Client] = queue.SimpleQueue()
    for _ in range(num_threads):
      self._clients.put(_Client(case))
    self._threads = futures.ThreadPoolExecutor(num_threads)
    initial = fedemb_round.create_backbone(case).trainable_variables
    self.weights = [tf.identity(variable) for variable in initial]
    self._momentum = [tf.zeros_like(weight) for weight in self.weights]

  def _run_client(self, client_id: str):
    client = self._clients.get()
    try:
      return client.train(self.weights, tf.constant(client_id))
    finally:
      self._clients.put(client)

  @tf.function
  def _add(self, total, update):
    return [a + b for a, b in zip(total, update, strict=True)]

  @tf.function
  def _update(self, weights, momentum, total):
    stddev = fedemb_round.NOISE_MULTIPLIER * fedemb_round.CLIP_NORM
    new_weights, new_momentum = [], []
    for weight, velocity, value in zip(weights, momentum, total, strict=True):
      noised = value + tf.random.normal(value.shape, stddev=stddev)
      velocity = (
        fedemb_round.SERVER_MOMENTUM * velocity
        + noised / self._case.num_clients
      )
      new_weights.append(weight - fedemb_round.SERVER_LEARNING_RATE * velocity)
      new_momentum.append(velocity)
    return new_weights, new_momentum

  def run_round(self, client_ids: list[str]) -> None:
    """Trains on clients and updates the model."""
    total = None
    for update in self._threads.map(self._run_client, client_ids):
      total = update if total is None else self._add(total, update)
    self.weights, self._momentum = self._update(
      self.weights, self._momentum, total
    )


class KerasStep:
  """The same training by bare Keras: one model, no clients, no server.

  A compiled Keras model whose `train_step` has all cores to itself. A round is
  as many batches of the same size as the clients of a round have.
  """

  def __init__(self, case: cases.Case):
    self._case = case
    backbone = fedemb_round.create_backbone(case)
    logits = tf.keras.layers.Dense(fedemb_round.NUM_CLASSES)(backbone.output)
    self.model = tf.keras.Model(backbone.input, logits)
    self.model.compile(
      optimizer=tf.keras.optimizers.SGD(fedemb_round.CLIENT_LEARNING_RATE),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    # `train_on_batch` would make a data set of each batch.
    self._train_step = tf.function(self.model.train_step)

  def run_round(self, client_ids: list[str]) -> None:
    """Trains on the data of clients, one batch after the other."""
    size = self._case.batch_size
    for client_id in client_ids:
      images, labels = fedemb_round.create_examples(
        tf.constant(client_id), self._case
      )
      for step in range(self._case.steps):
        rows = slice(step * size, (step + 1) * size)
        self._train_step((images[rows], labels[rows]))
