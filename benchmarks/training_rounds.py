"""A round of training: by DP-FedEmb or TFF's algorithm, and by a bare loop.

The bare loop is the same round with no framework, what somebody would write who
needs this one round and nothing else: a model per thread, a function that
trains it on one client, a sum, noise, a step of the server. It knows the size
of the head beforehand, accounts for no privacy, reports no metrics, and checks
nothing.
"""

import atexit
import collections
from collections.abc import Callable
from concurrent import futures
import queue
import tempfile

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from benchmarks import cases
from benchmarks import stock_processes
from tasks import emnist
from tasks import symbols
from tasks import task_config
from tasks.synthetic import emnist as synthetic
from tff_fedemb import runtime as runtimes
from tff_fedemb.algorithms import fedemb
from tff_fedemb.algorithms import learning_process
from tff_fedemb.algorithms import local_training
from tff_fedemb.data import pipelines
from tff_fedemb.mechanisms import mechanism
from tff_fedemb.mechanisms import registry
from tff_fedemb.models import backbones
from tff_fedemb.models import heads
from tff_fedemb.runtime import base
from tff_fedemb.runtime import worker_process
from tff_fedemb.spec import task as task_lib

EMBEDDING_DIM = 128
HEAD_LR_SCALE = 10.0
SERVER_LEARNING_RATE = 1.0
SERVER_MOMENTUM = 0.9
CLIP_NORM = 1.0
NOISE_MULTIPLIER = 0.1
_WRITER_IMAGES = 160


def create_backbone(case: cases.Case) -> tf.keras.Model:
  """Creates the Keras model from images to `[batch, EMBEDDING_DIM]`."""
  keras = tf.keras.layers
  if case.backbone == cases.SIMPLE_CNN:
    layers = [
      keras.Conv2D(32, 3, activation="relu"),
      keras.Conv2D(64, 3, activation="relu"),
      keras.MaxPool2D(2),
      keras.Dropout(0.25),
      keras.Flatten(),
      keras.Dense(EMBEDDING_DIM, activation="relu"),
      keras.Dropout(0.5),
    ]
  elif case.backbone == cases.DENSE:
    layers = [
      keras.Flatten(),
      *(keras.Dense(2048, activation="relu") for _ in range(6)),
      keras.Dense(1024, activation="relu"),
      keras.Dense(EMBEDDING_DIM),
    ]
  else:
    return backbones.create_backbone(
      case.backbone, case.image_shape, embedding_dim=EMBEDDING_DIM
    )
  images = keras.InputLayer(input_shape=case.image_shape)
  return tf.keras.Sequential([images, keras.Rescaling(1.0 / 255.0), *layers])


def create_task(directory: str, case: cases.Case) -> task_lib.Task | None:
  """Writes what a case's clients read; returns the task, if there is one."""
  if case.num_symbols:
    return symbols.create_symbols_task(
      task_config.PopulationConfig(num_users=case.num_symbols)
    )
  if not case.num_writers:
    return None
  # Everybody has a few images more than are used.
  synthetic.write_emnist(
    directory, num_users=case.num_writers, examples_per_user=_WRITER_IMAGES
  )
  return emnist.create_emnist_task(task_config.TaskConfig(data_dir=directory))


def create_examples(
  client_id: tf.Tensor, case: cases.Case, task: task_lib.Task | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
  """Makes or reads a client's data: the same images for the same id.

  Returns images `[n, height, width, channels]` uint8 and labels `[n]` int64; an
  id is a number as a string, scalar.
  """
  num_examples = case.steps * case.batch_size
  if task:
    examples = pipelines.gather(
      task.create_client_dataset(client_id).with_options(
        pipelines.build_options()
      ),
      max_elements=num_examples,
    )
    # Symbols have more classes than the bare loop's head.
    return examples["x"], examples["y"] % case.num_classes
  seed = tf.stack([tf.strings.to_number(client_id, tf.int64), tf.int64.max])
  images = tf.random.stateless_uniform(
    [num_examples, *case.image_shape], seed, 0, 256, tf.int32
  )
  labels = tf.random.stateless_uniform(
    [num_examples], seed, 0, case.num_classes, tf.int64
  )
  return tf.cast(images, tf.uint8), labels


def build_process(
  case: cases.Case, task: task_lib.Task | None = None
) -> tff.learning.templates.LearningProcess:
  """Builds the process of a case, from client ids; a task has its images."""
  if case.backbone in cases.STOCK:
    return stock_processes.build_process(case)
  mechanism_class = registry.AGGREGATORS[case.aggregator]
  aggregator = mechanism_class(
    clip_norm=CLIP_NORM,
    noise_multiplier=NOISE_MULTIPLIER if mechanism_class.adds_noise else 0.0,
  )
  process = fedemb.FedEmb(
    local=local_training.LocalTraining(
      learning_rate=case.learning_rate,
      head_lr_scale=HEAD_LR_SCALE,
      batch_size=case.batch_size,
      max_examples_per_client=case.steps * case.batch_size,
    ),
    head=heads.LinearHead(),
  ).build(
    lambda: create_backbone(case),
    example_type=(
      task.example_type
      if task
      else learning_process.build_example_type(case.image_shape)
    ),
    # A BLT matrix is optimised for these; its work is the same for any.
    aggregator=aggregator.create(
      case.num_clients, mechanism.Schedule(rounds=100, min_separation=10)
    ).factory,
    server_optimizer=tff.learning.optimizers.build_sgdm(
      SERVER_LEARNING_RATE, SERVER_MOMENTUM
    ),
  )

  @tff.tensorflow.computation(np.str_)
  def random_data(client_id):
    images, labels = create_examples(client_id, case)
    return tf.data.Dataset.from_tensors(
      collections.OrderedDict(x=images, y=labels)
    ).with_options(pipelines.build_options())

  return tff.simulation.compose_dataset_computation_with_learning_process(
    task.build_dataset_computation() if task else random_data, process
  )


class _Client:
  """A model and the function that trains it, for one thread."""

  def __init__(self, case: cases.Case, task: task_lib.Task | None):
    self.backbone = create_backbone(case)
    self._variables = self.backbone.trainable_variables
    self._case = case
    self._task = task
    self._head = tf.Variable(
      tf.zeros([case.num_classes, EMBEDDING_DIM]),
      trainable=False,
    )
    self._bias = tf.Variable(tf.zeros([case.num_classes]), trainable=False)

  @tf.function
  def train(self, weights, client_id):
    """Returns the clipped difference that a client's data make."""
    for variable, value in zip(self._variables, weights, strict=True):
      variable.assign(value)
    # Writers have names.
    number = tf.strings.to_hash_bucket_fast(client_id, tf.int32.max)
    seed = tf.stack([number, 0])
    self._head.assign(
      tf.random.stateless_normal(self._head.shape, seed, stddev=0.01)
    )
    self._bias.assign(tf.zeros_like(self._bias))
    images, labels = create_examples(client_id, self._case, self._task)
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
      rate = self._case.learning_rate
      head_rate = rate * HEAD_LR_SCALE
      for variable, gradient in zip(variables, gradients, strict=True):
        is_head = variable is self._head or variable is self._bias
        variable.assign_sub((head_rate if is_head else rate) * gradient)
    delta = [
      before - after
      for before, after in zip(weights, self._variables, strict=True)
    ]
    clipped, _ = tf.clip_by_global_norm(delta, CLIP_NORM)
    return clipped


class BareLoop:
  """The state of the training and its round."""

  def __init__(
    self,
    case: cases.Case,
    *,
    num_threads: int,
    task: task_lib.Task | None = None,
  ):
    self._case = case
    self._clients: queue.SimpleQueue[_Client] = queue.SimpleQueue()
    for _ in range(num_threads):
      self._clients.put(_Client(case, task))
    self._threads = futures.ThreadPoolExecutor(num_threads)
    initial = create_backbone(case).trainable_variables
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
    stddev = NOISE_MULTIPLIER * CLIP_NORM
    new_weights, new_momentum = [], []
    for weight, velocity, value in zip(weights, momentum, total, strict=True):
      noised = value + tf.random.normal(value.shape, stddev=stddev)
      velocity = SERVER_MOMENTUM * velocity + noised / self._case.num_clients
      new_weights.append(weight - SERVER_LEARNING_RATE * velocity)
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


def create_round(case_name: str, runtime_name: str) -> Callable[[int], object]:
  """Gets ready to train on a case; returns what runs the round of a number.

  The runtime is one of `runtimes.RUNTIMES`, 'bare' or 'data'.
  """
  worker_process.end_worker_on_exit()
  case = cases.CASES[case_name]
  directory = tempfile.TemporaryDirectory()
  atexit.register(directory.cleanup)

  def name_clients(task, round_num):
    numbers = case.client_ids(round_num)
    if task is None:
      return numbers
    users = task.train_users
    if not case.num_symbols:
      return [users.user_id(int(number)) for number in numbers]
    merged = np.arange(cases.USERS_PER_CLIENT)
    return users.client_ids(
      [int(number) * len(merged) + merged for number in numbers]
    )

  if runtime_name == cases.DATA:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    task = create_task(directory.name, case)
    read = tf.function(
      lambda client_id: create_examples(client_id, case, task),
      input_signature=[tf.TensorSpec([], tf.string)],
    )
    threads = futures.ThreadPoolExecutor(base.count_cores())
    return lambda round_num: [*threads.map(read, name_clients(task, round_num))]
  if runtime_name == "bare":
    tf.config.threading.set_intra_op_parallelism_threads(1)
    task = create_task(directory.name, case)
    bare = BareLoop(case, num_threads=base.count_cores(), task=task)
    return lambda round_num: bare.run_round(name_clients(task, round_num))
  # Before TensorFlow computes anything, and so before the data are made.
  runtime = runtimes.create_runtime(
    runtime_name, compute_precision=case.compute_precision
  )
  # A Ray of this machine takes its directory with it.
  atexit.register(runtime.close)
  task = create_task(directory.name, case)
  state = runtime.initialize(build_process(case, task))

  def run_round(round_num):
    nonlocal state
    state, _ = runtime.next(state, name_clients(task, round_num))

  return run_round
