"""The same round as a hand-written TensorFlow loop, with no framework.

What somebody would write who needs this one round and nothing else: a model
per thread, a function that trains it on one client, a sum, noise, a step of the
server. It knows the size of the head beforehand, accounts for no privacy,
reports no metrics, and checks nothing.
"""

from concurrent import futures
import queue

import tensorflow as tf

from benchmarks import cases


class _Client:
  """A model and the function that trains it, for one thread."""

  def __init__(self, case: cases.Case):
    self.backbone = case.create_backbone(case.image_shape)
    self._variables = self.backbone.trainable_variables
    self._case = case
    self._head = tf.Variable(
      tf.zeros([cases.NUM_CLASSES, cases.EMBEDDING_DIM]), trainable=False
    )
    self._bias = tf.Variable(tf.zeros([cases.NUM_CLASSES]), trainable=False)

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
    images, labels = cases.create_examples(client_id, self._case)
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
      rate = cases.CLIENT_LEARNING_RATE
      head_rate = rate * cases.HEAD_LR_SCALE
      for variable, gradient in zip(variables, gradients, strict=True):
        is_head = variable is self._head or variable is self._bias
        variable.assign_sub((head_rate if is_head else rate) * gradient)
    delta = [
      before - after
      for before, after in zip(weights, self._variables, strict=True)
    ]
    clipped, _ = tf.clip_by_global_norm(delta, cases.CLIP_NORM)
    return clipped


class BareLoop:
  """The state of the training and its round."""

  def __init__(self, case: cases.Case, *, num_threads: int):
    self._case = case
    self._clients: queue.SimpleQueue[_Client] = queue.SimpleQueue()
    for _ in range(num_threads):
      self._clients.put(_Client(case))
    self._threads = futures.ThreadPoolExecutor(num_threads)
    initial = case.create_backbone(case.image_shape).trainable_variables
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
    stddev = cases.NOISE_MULTIPLIER * cases.CLIP_NORM
    new_weights, new_momentum = [], []
    for weight, velocity, value in zip(weights, momentum, total, strict=True):
      noised = value + tf.random.normal(value.shape, stddev=stddev)
      velocity = (
        cases.SERVER_MOMENTUM * velocity + noised / self._case.num_clients
      )
      new_weights.append(weight - cases.SERVER_LEARNING_RATE * velocity)
      new_momentum.append(velocity)
    return new_weights, new_momentum

  def run_round(self, client_ids: list[str]) -> None:
    """Trains on clients and updates the model."""
    total = None
    pending = [
      self._threads.submit(self._run_client, client_id)
      for client_id in client_ids
    ]
    pending.reverse()
    while pending:
      update = pending.pop().result()
      total = update if total is None else self._add(total, update)
    self.weights, self._momentum = self._update(
      self.weights, self._momentum, total
    )
