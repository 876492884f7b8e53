"""A run whose task is at hand: what is built and trained.

`resolve` settles what a `RunSpec` leaves to the data, such as the number of
users, and refuses what does not fit them. `run_cost` has what their number
alone decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
import dataclasses
import functools
from typing import Any

from etils import epy

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.algorithms import fedemb
from tff_fedemb.algorithms import registry as algorithms
from tff_fedemb.deployment import deployment
from tff_fedemb.deployment import simulation as simulation_lib
from tff_fedemb.mechanisms import registry as aggregators
from tff_fedemb.spec import run_cost
from tff_fedemb.spec import spec as spec_lib

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_fedemb.algorithms import local_training
  from tff_fedemb.models import backbones
  from tff_fedemb.phones import client_file
  from tff_fedemb.phones import litert
  from tff_fedemb.runtime import precision
  from tff_fedemb.runtime import secure_sums
  from tff_fedemb.spec import task as task_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment(run_cost.RunCost):
  """A training on the data of users, and its cost.

  Attributes:
    task: Data and classes.
  """

  task: task_lib.Task

  @property
  def name(self) -> str:
    """Name of the algorithm."""
    return algorithms.ALGORITHMS.name_of(self.spec.algorithm)

  @property
  def client_training(self) -> local_training.ClientTraining:
    """Training of clients on the data of the task."""
    return self.spec.algorithm.local.resolve(
      rounds=self.spec.rounds,
      decode_images=self.task.decode_images,
      skip_unreadable=self.spec.task.skips_bad_examples,
    )

  @property
  def create_backbone(self) -> Callable[[], tf.keras.Model]:
    """Makes a fresh backbone for the task's images.

    Returns:
      A function without arguments; each call makes a Keras model with new
      weights.
    """
    return functools.partial(
      self.spec.algorithm.backbone.create,
      self.task.image_shape,
      default=self.task.default_backbone,
    )

  def build_process(
    self, **options: Any
  ) -> tff.learning.templates.LearningProcess:
    """Builds the process, which takes seconds.

    Args:
      **options: Options of `Algorithm.build`, beside those that the spec
        decides.

    Returns:
      A learning process whose clients are identifiers of virtual clients.

    Raises:
      errors.FieldError: If the runtime cannot run such a process.
    """
    spec, training = self.spec, self.client_training
    if spec.algorithm.is_private:
      options = {
        "aggregator": self.mechanism.factory,
        "server_optimizer": spec.check_private().server_optimizer.build(),
        **options,
      }
    build = functools.partial(
      spec.algorithm.build,
      self.create_backbone,
      training=training,
      num_classes=self.task.num_train_classes * training.classes_per_label,
      seed=spec.seed,
      **options,
    )
    limit = training.max_examples_per_client
    if spec.runtime.runtime == "tflite":
      if "wrap_client_update_fn" in options:
        raise errors.FieldError(
          "runtime", "be another for what changes clients' updates", "tflite"
        )
      return litert.PhoneProcess(
        build, self.create_client_file(), self.task.find_client_dataset(limit)
      )
    return tff.simulation.compose_dataset_computation_with_learning_process(
      self.task.build_dataset_computation(limit),
      build(example_type=self.task.example_type),
    )

  def create_client_file(self) -> client_file.ClientFile:
    """Creates what a client's phone would run.

    Returns:
      The file's contents, not written yet.

    Raises:
      errors.FieldError: If a file for phones cannot do what the spec says.
    """
    algorithm, config = self.spec.algorithm, self.mechanism.config
    if type(algorithm) is not fedemb.FedEmb or not self.task.has_images:
      raise errors.FieldError(
        "algorithm",
        "be fedemb, of images, for a file that trains on phones",
        f"{self.name}, task {self.task.name}",
      )
    if not config.clips or config.next_clip_norm_fn is not None:
      raise errors.FieldError(
        "aggregator",
        "have a fixed clip norm for a file that trains on phones",
        aggregators.AGGREGATORS.name_of(config),
      )
    return client_file.ClientFile(
      create_backbone_fn=self.create_backbone,
      head=algorithm.head,
      config=self.client_training,
      clip_norm=config.clip_norm,
      seed=self.spec.seed,
      spec_digest=self.spec.training_digest,
    )

  def create_simulation(
    self, process: tff.learning.templates.LearningProcess
  ) -> simulation_lib.Simulation:
    """Creates the simulation of a run with a deployment, before any round.

    Args:
      process: Process whose model is sent to a device; its trainable part comes
        back.

    Returns:
      The simulation. A device's work is its epochs over its images, with the
      steps of the head's warm-up.

    Raises:
      errors.FieldError: If the deployment is unknown, or its file cannot be
        used.
    """
    config, claim = self.spec.deployment, self.participation
    local, task = self.spec.algorithm.local, self.task
    # Without a limit take the mean, so that uneven data take longer.
    images: float = local.max_examples_per_client
    if not images:
      images = task.count_images("train") / len(task.train_users)
    warmup = local.head_warmup_steps * local.batch_size
    trainable, others = map(_count_bytes, _weights_of(process))
    return simulation_lib.Simulation(
      deployment.load(checks.check_given("deployment", config.deployment)),
      claim.num_slots,
      config.deployment_seed,
      simulation_lib.WorkOfRound(
        bytes_down=trainable + others,
        bytes_up=trainable,
        examples=local.epochs * images * local.classes_per_label + warmup,
      ),
      report_goal=claim.clients_per_round,
      min_separation=claim.min_separation or 1,
      max_participations=claim.max_participations,
    )

  @property
  def secure_sums(self) -> str | None:
    """Security of the sums of updates; None if they are in the clear."""
    if not self.mechanism.config.sums_securely:
      return None
    return secure_sums.SIMULATED

  @property
  def num_parameters(self) -> int | None:
    """Number of parameters of an update; None without noise.

    The head counts if the algorithm shares it, with all training classes.
    """
    if not self.mechanism.config.noise_multiplier:
      return None
    algorithm = self.spec.algorithm
    of_backbone, embedding_dim = self.measure_backbone()
    classes_per_label = algorithm.local.classes_per_label
    num_classes = self.task.num_train_classes * classes_per_label
    of_head = algorithm.count_head_parameters(num_classes, embedding_dim)
    return of_backbone + of_head

  @property
  def users_digest(self) -> str:
    """Digest of who the users are."""
    return self.task.train_users.digest

  def measure_backbone(self) -> tuple[int, int]:
    """Creates the backbone and measures it.

    Returns:
      Number of trainable parameters, and the embedding's number of dimensions.

    Raises:
      errors.FieldError: If the backbone does not fit the task.
    """
    return _measure_backbone(
      self.spec.algorithm.backbone,
      self.task.image_shape,
      self.task.default_backbone,
      self.spec.runtime.compute_precision,
    )


def count_parameters(process: tff.learning.templates.LearningProcess) -> int:
  """Returns the number of parameters of an update: the trainable weights.

  Args:
    process: Process whose clients' updates are summed.
  """
  trainable, _ = _weights_of(process)
  return sum(spec.shape.num_elements() for spec in trainable)


def _weights_of(
  process: tff.learning.templates.LearningProcess,
) -> list[list[tf.TensorSpec]]:
  """Specifications of a model's trainable weights, and of all others.

  Args:
    process: A learning process; only the type of its state is read.

  Returns:
    Two lists of `tf.TensorSpec`.
  """
  weights = process.initialize.type_signature.result.member.global_model_weights
  return [
    tf.nest.flatten(tff.types.type_to_tf_tensor_specs(part))
    for part in (weights.trainable, weights.non_trainable)
  ]


def _count_bytes(weights: Iterable[tf.TensorSpec]) -> int:
  """Bytes of some weights."""
  return sum(spec.shape.num_elements() * spec.dtype.size for spec in weights)


def resolve(spec: spec_lib.RunSpec, task: task_lib.Task) -> Experiment:
  """Settles what a spec leaves to the data.

  Args:
    spec: Spec of the run.
    task: The task that `spec.task` creates.

  Returns:
    The experiment, with the task.

  Raises:
    errors.FieldError: If the spec does not fit the data.
  """
  claim = spec.participation
  users_are_alone = claim is None or claim.users_per_client < 2
  has_local_head = isinstance(spec.algorithm, fedemb.FedEmb)
  if task.one_class_per_user and has_local_head and users_are_alone:
    raise errors.FieldError(
      "users_per_client",
      f"be at least 2 for task {task.name}, where a user has one class and a"
      " head of one class learns nothing",
      1,
    )
  spec.algorithm.local.check_images(
    task.name, task.image_shape if task.has_images else None
  )
  cost = run_cost.resolve_cost(spec, len(task.train_users))
  experiment = Experiment(task=task, **vars(cost))
  # A backbone that does not fit is refused before the process is built.
  experiment.measure_backbone()
  return experiment


# Trials of a tuning often have the same backbone.
@functools.lru_cache
def _measure_backbone(
  backbone: backbones.BackboneConfig,
  image_shape: tuple[int, ...],
  default: str,
  compute_precision: str,
) -> tuple[int, int]:
  """Checks a backbone; returns its trained numbers and its embedding's size.

  The backbone is built for it once; later calls with the same arguments take
  the result from a cache.

  Raises:
    errors.FieldError: If it does not fit the images, or is slower in the
      compute precision.
  """
  created = backbone.create(image_shape, default=default)
  precision.check_backbone(created, compute_precision)
  trained = sum(x.shape.num_elements() for x in created.trainable_variables)
  return trained, created.output_shape[-1]
