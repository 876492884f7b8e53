"""A run whose task is at hand: what is built, drawn and accounted for.

`resolve` settles what a `RunSpec` leaves to the data, such as the number of
users, and refuses what does not fit them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
import dataclasses
import functools
from typing import Any

from etils import epy

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.algorithms import centralized
from tff_fedemb.algorithms import fedemb
from tff_fedemb.algorithms import registry as algorithms
from tff_fedemb.deployment import deployment
from tff_fedemb.deployment import simulation as simulation_lib
from tff_fedemb.mechanisms import mechanism as mechanism_lib
from tff_fedemb.mechanisms import none
from tff_fedemb.mechanisms import registry as aggregators
from tff_fedemb.participation import check_ins
from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.participation import participation_check
from tff_fedemb.participation import participation_trace
from tff_fedemb.participation import registry as participations
from tff_fedemb.planning import budget
from tff_fedemb.planning import planning
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

# By default, a user may take part again after a quarter of a pass, that is, of
# the rounds in which the report goal uses up all users: those who are there by
# day must suffice.
_PARTS_OF_PASS = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
  """A training on the data of users, and its cost.

  Attributes:
    spec: Spec of the run.
    participation: Draws the virtual clients of a round.
    mechanism: Aggregator and what it costs.
    delta: Delta of the guarantee.
    task: Data and classes; `None` where only the cost matters.
  """

  spec: spec_lib.RunSpec
  participation: participation_lib.Participation
  mechanism: mechanism_lib.Mechanism
  delta: float
  task: task_lib.Task | None = None

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
    """Makes a fresh backbone for the task's images."""
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
        "server_optimizer": spec.server_optimizer.build(),
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
    """
    config, claim = self.spec.deployment, self.participation
    local, task = self.spec.algorithm.local, self.task
    # Without a limit the mean stands for it, so that uneven data take longer.
    images: float = local.max_examples_per_client
    if not images:
      images = task.count_images("train") / len(task.train_users)
    warmup = local.head_warmup_steps * local.batch_size
    trainable, others = map(_count_bytes, _weights_of(process))
    return simulation_lib.Simulation(
      deployment.load(config.deployment),
      claim.num_users,
      config.deployment_seed,
      simulation_lib.WorkOfRound(
        bytes_down=trainable + others,
        bytes_up=trainable,
        examples=local.epochs * images * local.classes_per_label + warmup,
      ),
      report_goal=claim.clients_per_round,
      min_separation=claim.min_separation,
      max_participations=claim.max_participations,
    )

  @property
  def secure_sums(self) -> str | None:
    """Security of the sums of updates; None if they are in the clear."""
    if not self.mechanism.config.sums_securely:
      return None
    return secure_sums.SIMULATED

  def plan_ledger(
    self, process: tff.learning.templates.LearningProcess | None = None
  ) -> ledger_lib.Ledger:
    """Creates the ledger of all rounds to come.

    Args:
      process: Process whose updates are summed; `None` takes the size of an
        update from `num_parameters`.

    Returns:
      The ledger, for the delta of the run.

    Raises:
      errors.FieldError: If the mechanism cannot be accounted for.
    """
    num_parameters = self.num_parameters
    if process is not None:
      trainable, _ = _weights_of(process)
      num_parameters = sum(spec.shape.num_elements() for spec in trainable)
    round_sum = planning.create_round_sum(
      self.mechanism.config, self.mechanism.clients_per_round, num_parameters
    )
    return ledger_lib.create_ledger(
      self.participation,
      composition.noise_of(self.mechanism),
      self.spec.rounds,
      delta=self.delta,
      round_sum=round_sum,
    )

  @property
  def num_parameters(self) -> int | None:
    """Numbers of an update; None without a task, or where nothing is noised."""
    if self.task is None or not self.mechanism.config.noise_multiplier:
      return None
    algorithm = self.spec.algorithm
    of_backbone, embedding_dim = self.measure_backbone()
    classes_per_label = algorithm.local.classes_per_label
    num_classes = self.task.num_train_classes * classes_per_label
    of_head = algorithm.count_head_parameters(num_classes, embedding_dim)
    return of_backbone + of_head

  def measure_backbone(self) -> tuple[int, int]:
    """Returns the backbone's trained numbers, and the size of an embedding.

    Raises:
      errors.FieldError: If the backbone does not fit the task.
    """
    return _measure_backbone(
      self.spec.algorithm.backbone,
      self.task.image_shape,
      self.task.default_backbone,
      self.spec.runtime.compute_precision,
    )

  def predict_ledger(self) -> ledger_lib.Ledger:
    """Returns the ledger of all rounds to come, as the trace will bear it out.

    Under a `sampling_seed` anyone can draw all rounds, and so count those that
    a user is in.
    """
    ledger, users = self.plan_ledger(), self.participation.num_users
    if self.spec.sampling_seed is None:
      return ledger
    rounds = self._draw_rounds(self.spec.sampling_seed)
    return ledger.as_seen(participation_check.observe(users, rounds))

  def _draw_rounds(
    self, key: int
  ) -> Iterator[participation_trace.RecordedRound]:
    """Draws all rounds, one after the other, as a trace has them."""
    for number in range(self.spec.rounds):
      clients = self.participation.sample(number, key=key)
      yield participation_trace.RecordedRound.of(number, clients)

  def check_budget(self) -> None:
    """Refuses a new run for which its budget has too little left.

    Raises:
      errors.FieldError: As `budget.check`.
    """
    if self.spec.privacy_budget is not None:
      planned = self.plan_ledger()
      users = self.task.train_users.digest if self.task is not None else None
      budget.check(self.spec.privacy_budget, planned, users=users)


def _weights_of(
  process: tff.learning.templates.LearningProcess,
) -> list[list[tf.TensorSpec]]:
  """Specifications of a model's trainable weights, and of all others."""
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
  experiment = resolve_cost(spec, len(task.train_users))
  experiment = dataclasses.replace(experiment, task=task)
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
  """Checks a backbone; returns its trained numbers and its embedding's size."""
  created = backbone.create(image_shape, default=default)
  precision.check_backbone(created, compute_precision)
  trained = sum(x.shape.num_elements() for x in created.trainable_variables)
  return trained, created.output_shape[-1]


def resolve_cost(spec: spec_lib.RunSpec, num_users: int) -> Experiment:
  """Settles what a spec leaves to the number of users, without their data.

  Args:
    spec: Spec of the run.
    num_users: Number of users who train.

  Returns:
    The experiment, without a task: it has a cost, and cannot be trained.

  Raises:
    errors.FieldError: If the spec does not fit so many users.
  """
  delta = spec.delta
  if delta is None:
    delta = planning.default_delta(num_users)
  algorithm = spec.algorithm
  if not isinstance(algorithm, centralized.Centralized):
    if spec.mechanism.noise_multiplier:
      checks.check_not_alone("users", num_users)
    participation = _create_participation(spec, num_users)
    mechanism = spec.mechanism.create(
      participation.clients_per_round,
      composition.schedule_of(participation, spec.rounds),
      spec.workload,
    )
  else:
    users = algorithm.users_per_round
    checks.check_integer("users_per_round", users, minimum=1, maximum=num_users)
    participation = fixed_size.FixedSize(
      num_users, users, users_per_client=users
    )
    mechanism = none.NoneConfig().create(clients_per_round=1)
  if spec.sampling_seed is not None:
    participation = participation.with_known_schedule()
  return Experiment(
    spec=spec,
    participation=participation,
    mechanism=mechanism,
    delta=delta,
  )


def _create_participation(
  spec: spec_lib.RunSpec, num_users: int
) -> participation_lib.Participation:
  """The participation that is asked for, settled for so many users."""
  asked, goal = spec.participation, spec.participation.clients_per_round
  if asked.users_are != "expected":
    checks.check_integer("users_per_round", asked.users_per_round, minimum=1)
  if spec.deployment.deployment is not None:
    deployed = deployment.load(spec.deployment.deployment)
    server = deployed.server
    min_separation = asked.min_separation or server.min_separation
    part_of_pass = max(num_users // (_PARTS_OF_PASS * goal), 1)
    return check_ins.CheckIns(
      num_users,
      goal,
      users_per_client=asked.users_per_client,
      min_separation=min_separation or part_of_pass,
      max_participations=min(
        filter(None, [asked.max_participations, server.max_participations]),
        default=None,
      ),
      equal_work=deployed.compute.equal_work,
    )
  if asked.max_participations is not None:
    raise errors.FieldError(
      "max_participations",
      "not be given without a deployment, whose server enforces it",
      asked.max_participations,
    )
  users = goal * asked.users_per_client
  if users > num_users:
    raise errors.FieldError(
      "clients_per_round x users_per_client",
      f"be at most the number of users, {num_users:,}",
      f"{goal} x {asked.users_per_client} = {users}",
    )
  fields = {**vars(spec.mechanism), **vars(asked)}
  bands = planning.options_of_bands(
    participations.PARTICIPATIONS.name_of(asked),
    aggregators.AGGREGATORS.name_of(spec.mechanism),
    fields,
  )
  asked = dataclasses.replace(asked, **bands)
  return asked.for_users(num_users).for_rounds(spec.rounds)
