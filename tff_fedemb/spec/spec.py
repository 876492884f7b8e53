"""The spec of a run: one frozen object, from which everything else follows.

You make a `RunSpec` in a notebook, from flags or from the `run.json` of a run.
The cost of the run, the draw of users, the process that is built, whether a run
may go on, the search space of private tuning and the contents of a report are
functions of it, and of what happened in the rounds (`records.chain`).
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import hashlib
import json
import os
import pathlib
from typing import Any

from tff_fedemb import checks
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb import runtime as runtimes
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.algorithms import algorithm as algorithm_lib
from tff_fedemb.algorithms import fedemb
from tff_fedemb.algorithms import registry as algorithms
from tff_fedemb.algorithms import server_optimizers
from tff_fedemb.deployment import deployment as deployments
from tff_fedemb.mechanisms import gaussian
from tff_fedemb.mechanisms import mechanism as mechanism_lib
from tff_fedemb.mechanisms import registry as aggregators
from tff_fedemb.mechanisms import strategy as strategy_lib
from tff_fedemb.models import backbones
from tff_fedemb.participation import check_ins
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.participation import registry as participations
from tff_fedemb.planning import extrapolation as extrapolation_lib
from tff_fedemb.planning import planning
from tff_fedemb.records import run_directory
from tff_fedemb.rounds import loop
from tff_fedemb.spec import deployment as deployment_lib
from tff_fedemb.spec import task as task_lib

_PRIVATE_PARTS = (
  "participation",
  "mechanism",
  "server_optimizer",
  "privacy_budget",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation(config.Config):
  """Numbers of held-out images that a model is evaluated on.

  Attributes:
    max_evaluation_images: Maximum number of validation images of an evaluation
      during training; 0 for all.
    max_held_out_images: Maximum number of images of each held-out split, on
      which the model is evaluated before and after training; 0 for all. A
      larger split is sampled at random, always in the same way, and results
      name the sample.
    metrics: Whether to measure EER, d', precision at 1, R-precision, MAP@R, MRR
      and NMI on the held-out images too, before and after training. It takes a
      minute for 50,000 images.

  Examples:
    >>> fe.Evaluation(max_held_out_images=5_000).max_held_out_images
    5000
  """

  max_evaluation_images: int = config.field(2000, minimum=0)
  # All pairs of so many small images take minutes.
  max_held_out_images: int = config.field(20_000, minimum=0)
  metrics: bool = config.field(False, decides=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtrapolationConfig(config.Config):
  """Population for which the cost of the same noise on the mean is computed.

  Attributes:
    extrapolated_num_users: Population for which the cost of the same noise on
      the mean is worked out beside the run's own; 0 for none.
    cohort_factor: Users of a round and noise multiplier of the extrapolation /
      of the run.
    extrapolated_delta: Delta of the extrapolation, at most 1 /
      extrapolated_num_users [extrapolated_num_users ** -1.1].

  Raises:
    errors.FieldError: If a field is out of its range, or delta is more than 1 /
      extrapolated_num_users.
  """

  extrapolated_num_users: int = config.field(10_000_000, minimum=0)
  cohort_factor: float = config.field(
    64.0, above=0, flag="extrapolated_cohort_factor"
  )
  extrapolated_delta: float | None = config.field(None, **checks.DELTA_RANGE)

  def __post_init__(self):
    super().__post_init__()
    num_users, delta = self.extrapolated_num_users, self.extrapolated_delta
    if num_users and delta is not None and delta > 1.0 / num_users:
      raise errors.FieldError(
        "extrapolated_delta",
        f"be at most 1 / extrapolated_num_users = {1.0 / num_users:g}",
        f"{delta:g}",
      )

  def extrapolate(
    self, simulated: ledger_lib.Ledger
  ) -> extrapolation_lib.Extrapolation | None:
    """Computes the cost of the same noise on the mean with more users.

    Args:
      simulated: All rounds of the run, alike.

    Returns:
      The extrapolation; `None` without noise, or if there is to be none.

    Raises:
      errors.FieldError: As `extrapolation.extrapolate_ledger`.
    """
    if not self.extrapolated_num_users or not simulated.noise.multiplier:
      return None
    delta = self.extrapolated_delta
    if delta is None:
      delta = planning.default_delta(self.extrapolated_num_users)
    return extrapolation_lib.extrapolate_ledger(
      simulated,
      num_users=self.extrapolated_num_users,
      cohort_factor=self.cohort_factor,
      delta=delta,
    )


@dataclasses.dataclass(frozen=True)
class PrivateParts:
  """The parts of a spec that training on pooled data has no use for.

  Attributes:
    participation: Choice of the users of a round.
    mechanism: Aggregation and noise of updates.
    server_optimizer: Optimizer that applies the aggregated update.
  """

  participation: participation_lib.Participation
  mechanism: mechanism_lib.MechanismConfig
  server_optimizer: server_optimizers.ServerOptimizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSpec(loop.TrainingConfig):
  """The spec of a run.

  Attributes:
    task: Users, their data and the held-out classes.
    algorithm: Algorithm by which clients train.
    participation: Choice of the users of a round; None for pooled data.
    mechanism: Aggregation and noise of updates [gaussian without noise];
      None for pooled data.
    server_optimizer: Optimizer that applies the aggregated update [sgd with
      momentum]; None for pooled data. The adaptive ones, adam and yogi, are for
      runs without noise.
    noise_objective: Models in which banded and BLT noise is small, by the
      server's momentum: rmse is the root mean square over the models of all
      rounds, last that of the last round alone. prefix_sums is rmse without
      momentum, whatever the server's is.
    delta: Delta of the guarantee [number of users ** -1.1].
    privacy_budget: File of a budget that runs on the same users share, JSON
      with epsilon, delta and num_users. It is charged before the first round;
      a run for which too little is left is refused.
    pretrained_backbone: File that the backbone's weights start from: a
      SavedModel or a Keras weights file, made from public data. No epsilon
      accounts for it.
    seed: Seed of initial weights and client work, less than 2**32. Neither who
      takes part nor differentially private noise comes from it.
    sampling_seed: For experiments alone: who takes part is drawn from this
      number, which everyone who has run.json knows, so that sampling amplifies
      nothing and epsilon is many times as large [a secret key, drawn anew for
      each run and kept with its checkpoints].
    evaluation: Numbers of images that the model is evaluated on.
    extrapolation: Larger population for which the cost is computed as well.
    deployment: Devices that come and go on a simulated clock.
    runtime: Runtime that executes the rounds.

  Raises:
    errors.FieldError: If a field is out of its range, a part is missing, or
      parts contradict each other; for example a deployment with sampled
      participation.

  Examples:
    >>> images = np.zeros([24, 8, 8, 1], np.uint8)
    >>> labels, users = np.arange(24) % 4, np.arange(24) // 3
    >>> task = fe.ArrayTask(images, labels, users, test=(images, labels))
    >>> spec = fe.RunSpec(
    ...   task=task,
    ...   participation=fe.Poisson(users_per_round=4),
    ...   mechanism=fe.Gaussian(noise_multiplier=1.0, clip_norm=0.1),
    ...   rounds=2,
    ... )
    >>> spec.to_json()["rounds"]
    2
  """

  task: task_lib.TaskSource = config.part(registry=task_lib.SOURCES)
  algorithm: algorithm_lib.Algorithm = config.part(
    fedemb.FedEmb(), registry=algorithms.ALGORITHMS
  )
  participation: participation_lib.Participation | None = config.part(
    None, registry=participations.PARTICIPATIONS
  )
  mechanism: mechanism_lib.MechanismConfig | None = config.part(
    None, registry=aggregators.AGGREGATORS, flag="aggregator"
  )
  server_optimizer: server_optimizers.ServerOptimizer | None = config.part(
    None, registry=server_optimizers.SERVER_OPTIMIZERS, searchable=True
  )
  noise_objective: str = config.field(
    "rmse", choices=(*strategy_lib.OBJECTIVES, strategy_lib.OF_PREFIX_SUMS)
  )
  delta: float | None = config.field(None, **checks.DELTA_RANGE)
  privacy_budget: str | None = config.field(None, path=True)
  pretrained_backbone: str | None = config.field(None, path=True)
  seed: int = config.field(0, minimum=0, maximum=2**32 - 1)
  sampling_seed: int | None = config.field(None, minimum=0, maximum=2**63 - 1)
  evaluation: Evaluation = config.part(Evaluation())
  extrapolation: ExtrapolationConfig = config.part(
    ExtrapolationConfig(), decides=False
  )
  deployment: deployment_lib.DeploymentConfig = config.part(
    deployment_lib.DeploymentConfig()
  )
  runtime: runtimes.RuntimeConfig = config.part(runtimes.RuntimeConfig())

  def __post_init__(self):
    super().__post_init__()
    norm = self.algorithm.backbone.norm
    if norm == backbones.FROZEN and self.pretrained_backbone is None:
      raise errors.FieldError(
        "norm",
        f"be {backbones.GROUP} without a pretrained_backbone, whose statistics"
        " stay",
        norm,
      )
    if not self.algorithm.is_private:
      self._check_pooled()
      return
    if self.mechanism is None:
      object.__setattr__(self, "mechanism", gaussian.GaussianConfig())
    if self.server_optimizer is None:
      sgd = server_optimizers.SgdMomentum()
      object.__setattr__(self, "server_optimizer", sgd)
    deployed = self.deployment.deployment is not None
    is_check_ins = isinstance(self.participation, check_ins.CheckIns)
    if self.participation is None or is_check_ins != deployed:
      raise errors.FieldError(
        "participation",
        f"be given, and be {check_ins.CheckIns.name} with a deployment, whose"
        " devices decide who is there, and with nothing else",
        self.participation and self.participation.name,
      )
    if self.sampling_seed is not None and deployed:
      raise errors.FieldError(
        "sampling_seed",
        "not be given with a deployment, whose users are not drawn",
        self.sampling_seed,
        "deployment_seed is that of the devices.",
      )

  def check_private(self) -> PrivateParts:
    """Returns the parts that training on pooled data does not have.

    Raises:
      errors.FieldError: If the algorithm trains on pooled data.
    """
    claim, mechanism = self.participation, self.mechanism
    server = self.server_optimizer
    if claim is None or mechanism is None or server is None:
      raise errors.FieldError(
        "algorithm",
        "have a mechanism, whose privacy is at stake here",
        f"{algorithms.ALGORITHMS.name_of(self.algorithm)}, which trains on"
        " pooled data",
      )
    return PrivateParts(claim, mechanism, server)

  def _check_pooled(self) -> None:
    """Refuses what training on pooled data has no use for.

    Raises:
      errors.FieldError: If a private part, a budget or a deployment is given.
    """
    name = algorithms.ALGORITHMS.name_of(self.algorithm)
    values = {part: getattr(self, part) for part in _PRIVATE_PARTS}
    values["deployment"] = self.deployment.deployment
    for part, value in values.items():
      if value is not None:
        raise errors.FieldError(
          part,
          f"not be given with algorithm {name}, which trains on pooled data",
          value if isinstance(value, str) else type(value).__name__,
        )

  @classmethod
  def from_json(
    cls,
    values: Mapping[str, Any],
    *,
    task: task_lib.TaskSource | None = None,
  ) -> RunSpec:
    """Inverse of `to_json`.

    Args:
      values: JSON values by field.
      task: Task in place of the one that the values name, if given.

    Returns:
      The spec, whose task can be created.

    Raises:
      errors.FieldError: If a value is missing or out of its range, or the
        task's data are in no file and it is not given.
    """
    task_lib.load_tasks()
    if task is not None:
      values = {**values, "task": task}
    spec = super().from_json(values)
    if isinstance(spec.task, task_lib.RecordedTask):
      spec.task.create()
    return spec

  def with_absolute_paths(self) -> RunSpec:
    """Returns the spec with absolute paths, for any working directory.

    Returns:
      A copy in which each path that is given is absolute. Names of deployments
      that come along stay as they are.
    """
    changes = {}
    for names, field, value in config.walk(self):
      is_preset = field.name == "deployment" and value in deployments.PRESETS
      if field.path and value is not None and not is_preset:
        changes[names] = os.path.abspath(value)
    return config.replace(self, changes)

  @property
  def workload(self) -> strategy_lib.Workload:
    """The models that banded and BLT noise is made for.

    They follow from `noise_objective` and the server's momentum.

    Raises:
      errors.FieldError: As `check_private`, if the momentum matters.
    """
    if self.noise_objective == strategy_lib.OF_PREFIX_SUMS:
      return strategy_lib.PREFIX_SUMS
    server = self.check_private().server_optimizer
    return server.workload(self.noise_objective)

  @property
  def training_digest(self) -> str:
    """SHA-256, in hex, of what decides the result on any runtime.

    The runtime's fields and those that decide nothing, such as the
    extrapolation, are left out. The task is in it as its JSON.
    """
    settings: dict[str, Any] = {"task": self.to_json()["task"]}
    for names, field, value in config.walk(self):
      if field.decides and names[0] not in ("runtime", "task"):
        settings[".".join(names)] = value
    text = json.dumps(settings, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()

  def settings(self, *, with_paths: bool = True) -> dict[str, Any]:
    """Returns all values by the names of their flags, for tables and reports.

    Args:
      with_paths: Whether paths are whole. If not, they are cut to their last
        parts, which say nothing about the machine.

    Returns:
      Values by flag. `clients_per_round`, which is derived, is added if users
      are drawn. The first of equal names wins.
    """
    found = {}
    for _, field, value in config.walk(self):
      if field.path and value is not None and not with_paths:
        value = os.path.basename(os.path.normpath(value))
      found.setdefault(field.flag, value)
    if self.participation is not None:
      found["clients_per_round"] = self.participation.clients_per_round
    return found


def read(run_dir: str | os.PathLike[str]) -> RunSpec:
  """Reads what a run was asked for, from its `run.json`.

  Args:
    run_dir: Directory of the run.

  Returns:
    The spec; the data of its task may be missing.

  Raises:
    errors.FieldError: If there is no such file, or it is damaged.
  """
  path = pathlib.Path(run_dir) / run_directory.SPEC
  values = run_directory.read_json(path)
  if values is None:
    raise errors.FieldError("run_dir", "hold a run", f"{run_dir} without")
  task_lib.load_tasks()
  try:
    # `RunSpec.from_json` would refuse arrays that are known only by a digest.
    return super(RunSpec, RunSpec).from_json(values)
  except errors.FieldError as error:
    raise run_directory.damaged(path, error) from error


def varying(spec: RunSpec) -> frozenset[tuple[str, ...]]:
  """Returns the paths of fields that may change when a run goes on.

  Args:
    spec: The spec.

  Returns:
    Paths of field names, such as `("runtime", "ray_workers")`.
  """
  return frozenset(
    path for path, field, _ in config.walk(spec) if not field.decides
  )
