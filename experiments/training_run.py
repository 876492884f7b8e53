"""One training run, from its parts to the files that it leaves.

What `run_federated` and `run_centralized` have in common.
"""

from collections.abc import Callable
import dataclasses
import functools
import json
import time
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from experiments import backbone_files
from experiments import data_problems
from experiments import held_out
from experiments import smoke
from experiments import training_flags
from experiments import training_output
from tasks import registry as task_registry
from tasks import task as task_lib
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.aggregators import mechanism as mechanism_lib
from tff_fedemb.data import participation_trace
from tff_fedemb.data.participation import participation as participation_lib
from tff_fedemb.evaluation import verification
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import epsilon as epsilon_lib
from tff_fedemb.privacy import extrapolation as extrapolation_lib
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.privacy import planning
from tff_fedemb.privacy import report as report_lib
from tff_fedemb.program import checkpoints
from tff_fedemb.program import export
from tff_fedemb.program import metrics
from tff_fedemb.program import run_directory
from tff_fedemb.program import summary
from tff_fedemb.program import training
from tff_fedemb.runtime import base

# Of the curves of epsilon.
_NUM_EPSILON_POINTS = 12


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtrapolationConfig(config_lib.Config):
  """For whom the cost of the same noise on the mean is worked out.

  Attributes:
    extrapolated_num_users: Population for which the cost of the same noise on
      the mean is worked out beside the run's own; 0 for none.
    cohort_factor: Users of a round and noise multiplier of the extrapolation /
      of the run.
  """

  extrapolated_num_users: int = config_lib.field(10_000_000, minimum=0)
  cohort_factor: float = config_lib.field(64.0, above=0)


@dataclasses.dataclass(frozen=True)
class Experiment:
  """What a program decides before it opens the run directory.

  Attributes:
    name: Name of the algorithm.
    task: Data and classes.
    create_backbone: Makes a fresh backbone.
    build_process: Builds the learning process; slow, hence deferred.
    participation: Draws the virtual clients of a round.
    mechanism: Aggregator and what it costs.
    delta: At which epsilon is stated.
    extrapolation: For whom else to work out the cost; None for nobody.
    export_backbone: Where to write the backbone beside the run's own
      SavedModel, or `None`.
  """

  name: str
  task: task_lib.Task
  create_backbone: Callable[[], tf.keras.Model]
  build_process: Callable[[], tff.learning.templates.LearningProcess]
  participation: participation_lib.Participation
  mechanism: mechanism_lib.Mechanism
  delta: float
  extrapolation: ExtrapolationConfig | None = None
  export_backbone: str | None = None


@dataclasses.dataclass(frozen=True)
class _Run:
  """A run whose directory is open.

  Attributes:
    experiment: What is run.
    settings: What both programs are set by.
    directory: What it leaves.
    ledger: Empty.
    runtime: What executes the rounds.
    process: Takes the identifiers of virtual clients.
    evaluator: Its backbone has the weights that training starts from.
    untrained: What random weights achieve, by split.
    pretrained: What training starts from if not from random weights, JSON
      values by name.
    metrics: Those of the rounds.
    start: When the program began, by `time.perf_counter`.
  """

  experiment: Experiment
  settings: training_flags.Settings
  directory: run_directory.RunDirectory
  ledger: ledger_lib.Ledger
  runtime: base.Runtime
  process: tff.learning.templates.LearningProcess
  evaluator: held_out.Evaluator
  untrained: dict[str, verification.VerificationResult]
  pretrained: dict[str, Any] | None
  metrics: metrics.MetricsLog
  start: float


def create_task(settings: training_flags.Settings) -> task_lib.Task:
  """Creates the task, of data that are made up if they are to be."""
  name, config = settings.run.task, settings.data
  if settings.run.smoke:
    if config.data_dir is not None:
      raise errors.FieldError(
        "data_dir",
        "not be given with --smoke, which makes its own",
        config.data_dir,
      )
    data_dir = smoke.prepare_data(name, config.cache_dir)
    config = dataclasses.replace(config, data_dir=data_dir)
  return task_registry.create_task(name, config)


def create_backbone_fn(
  settings: training_flags.Settings, task: task_lib.Task
) -> Callable[[], tf.keras.Model]:
  """Creates the function that makes a backbone for a task's images."""
  create = functools.partial(
    settings.backbone.create, task.image_shape, default=task.default_backbone
  )
  # Refused now, not when the process is built.
  create()
  return create


def _create_ledger(experiment: Experiment) -> ledger_lib.Ledger:
  """Creates the empty ledger of a run."""
  claim = experiment.participation
  # Refused now, not after the first round.
  composition.check_noise([(experiment.mechanism.round_event, 1)], claim)
  return ledger_lib.Ledger(
    claim,
    delta=experiment.delta,
    accountants=epsilon_lib.accountants_of_run(
      claim, experiment.mechanism.noise_multiplier
    ),
  )


def _extrapolate(
  experiment: Experiment,
  rounds: int,
  *,
  accountants: tuple[str, ...] | None = None,
) -> extrapolation_lib.Extrapolation | None:
  """Cost of the same noise on the mean with more users; `None` if no noise."""
  config, mechanism = experiment.extrapolation, experiment.mechanism
  if (
    config is None
    or not config.extrapolated_num_users
    or not mechanism.noise_multiplier
  ):
    return None
  return extrapolation_lib.extrapolate(
    rounds=rounds,
    noise_multiplier=mechanism.noise_multiplier,
    participation=experiment.participation,
    strategy=mechanism.strategy,
    num_users=config.extrapolated_num_users,
    cohort_factor=config.cohort_factor,
    delta=planning.default_delta(config.extrapolated_num_users),
    accountants=accountants,
  )


def execute(experiment: Experiment, settings: training_flags.Settings) -> None:
  """Trains, evaluates, exports and reports.

  Args:
    experiment: What to run.
    settings: What both programs are set by.
  """
  run = _prepare(experiment, settings)
  if run is not None:
    state, model_weights, seconds_before = _train(run)
    _report(run, state, model_weights, seconds_before)
    run.directory.close()


def _prepare(
  experiment: Experiment, settings: training_flags.Settings
) -> _Run | None:
  """Checks all that can be checked, opens the directory, builds the process.

  Args:
    experiment: What to run.
    settings: What both programs are set by.

  Returns:
    The run; `None` if it is complete.
  """
  start = time.perf_counter()
  task, run_dir = experiment.task, settings.run.run_dir
  ledger = _create_ledger(experiment)
  _extrapolate(experiment, settings.training.rounds)
  runtime = settings.runtime.create()
  by_split, sample = held_out.load_images(
    task, settings.run.max_evaluation_images
  )
  tf.keras.utils.set_random_seed(settings.run.seed)
  start_point = backbone_files.load_start(
    experiment.create_backbone, settings.run.pretrained_backbone, run_dir
  )
  backbone_files.check_export(experiment.export_backbone, run_dir)
  directory = run_directory.RunDirectory(run_dir, settings.record)
  if directory.read_json(run_directory.SUMMARY) is not None:
    training_output.say(
      f"This run is complete; see {directory.path / run_directory.SUMMARY}."
    )
    backbone_files.export(directory, experiment.export_backbone)
    return None
  training_output.say(
    f"{task.name}: {len(task.train_users)} users ({task.user_meaning}),"
    f" {task.num_train_classes} training classes; {task.split_description}."
  )
  for line in data_problems.describe(task):
    training_output.say(line)
  # Keras disowns layers made before others are made inside a TFF computation:
  # the process comes first.
  process = tff.simulation.compose_dataset_computation_with_learning_process(
    task.build_dataset_computation(), experiment.build_process()
  )
  tf.keras.utils.set_random_seed(settings.run.seed)
  evaluator = held_out.Evaluator(experiment.create_backbone(), by_split, sample)
  untrained = evaluator.evaluate_all()
  if start_point is not None and start_point.weights is not None:
    evaluator.backbone.set_weights(start_point.weights)
    backbone_files.record_start(
      start_point, evaluator.evaluate_all(), directory
    )
  return _Run(
    experiment,
    settings,
    directory,
    ledger,
    runtime,
    process,
    evaluator,
    untrained,
    start_point.record if start_point else None,
    metrics.MetricsLog(directory.path),
    start,
  )


def _train(run: _Run) -> tuple[training.TrainingState, Any, float]:
  """Runs the rounds that are left.

  Args:
    run: What to train.

  Returns:
    The last state, its model weights, and the seconds that earlier programs
    have spent on the run.
  """
  task, directory = run.experiment.task, run.directory
  trace = participation_trace.TraceWriter(
    directory.path / run_directory.TRACE, len(task.train_users)
  )
  loop = training.TrainingLoop(
    run.process,
    runtime=run.runtime,
    users=task.train_users,
    participation=run.experiment.participation,
    seed=run.settings.run.seed,
    round_event=run.experiment.mechanism.round_event,
    ledger=run.ledger,
    trace=trace,
    evaluate_fn=run.evaluator.validate,
    checkpoints=checkpoints.Checkpoints(
      directory.path / backbone_files.CHECKPOINTS, warn=training_output.say
    ),
    metrics=run.metrics,
    config=run.settings.training,
    publish_ledger=lambda ledger: directory.write_json(
      run_directory.LEDGER, json.loads(ledger.to_json())
    ),
    name_skipped=lambda clients: data_problems.find_in_clients(task, clients),
    say=training_output.say,
  )
  with run.runtime:
    state = loop.start(_start_from(run.evaluator.backbone))
    seconds_before = state.wall_seconds
    try:
      state = loop.run(state)
    except base.ClientError as error:
      data_problems.explain(task, error)
      raise
    model_weights = loop.weights(state)
  trace.close()
  return state, model_weights, seconds_before


def _start_from(backbone: tf.keras.Model) -> Callable[[Any], Any]:
  """From a process's first model weights to those of a backbone, and a head."""
  weights = backbone.get_weights()

  def start_from_backbone(model_weights):
    # Evaluations may have changed them in between.
    backbone.set_weights(weights)
    start = tff.learning.models.ModelWeights.from_model(backbone)
    head = tuple(model_weights.trainable)[len(start.trainable) :]
    return tff.learning.models.ModelWeights(
      (*(v.numpy() for v in start.trainable), *head),
      tuple(v.numpy() for v in start.non_trainable),
    )

  return start_from_backbone


def _report(
  run: _Run,
  state: training.TrainingState,
  model_weights: Any,
  seconds_before: float,
) -> None:
  """Evaluates and exports the model, and writes and prints what came out.

  Args:
    run: What was trained.
    state: After the last round.
    model_weights: Of the state.
    seconds_before: Time that earlier programs have spent on the run.
  """
  experiment, directory = run.experiment, run.directory
  task = experiment.task
  run.evaluator.set_weights(model_weights)
  trained = run.evaluator.evaluate_all()
  export.export_backbone(
    run.evaluator.backbone, directory.path / backbone_files.SAVED_MODEL
  )
  extrapolation = _extrapolate(experiment, run.settings.training.rounds)
  # PLD takes seconds: once for all that tell of it.
  privacy = _account(state.ledger, directory)
  rounds = run.metrics.read()
  summary.draw_plots(
    directory.path / "plots",
    metrics=rounds,
    ledger=state.ledger,
    privacy=privacy,
    trained=trained,
    untrained=run.untrained,
    title=f"{task.name}, {experiment.name}",
    **_epsilon_curves(experiment, state.rounds_done, extrapolation),
  )
  report = summary.build_summary(
    state=state,
    trained=trained,
    untrained=run.untrained,
    pretrained=run.pretrained,
    privacy=privacy,
    extrapolation=extrapolation,
    num_private_parameters=_count(model_weights.trainable),
    wall_seconds=seconds_before + time.perf_counter() - run.start,
    extra={
      "algorithm": experiment.name,
      "task": task.name,
      "num_users": len(task.train_users),
      "num_frozen_parameters": _count(model_weights.non_trainable),
      "num_skipped_clients": int(rounds[training.NUM_SKIPPED_CLIENTS].sum()),
      "split": task.split_description,
      "evaluation_on_training_users": task.evaluation_on_training_users,
      "data": data_problems.summarize(task, rounds),
    },
  )
  directory.write_json(run_directory.SUMMARY, report)
  training_output.tell(
    task, directory, report, trained["test"], privacy, extrapolation
  )
  backbone_files.export(directory, experiment.export_backbone)


def _count(weights) -> int:
  return sum(np.size(value) for value in weights)


def _account(
  ledger: ledger_lib.Ledger, directory: run_directory.RunDirectory
) -> report_lib.PrivacyReport:
  """The account of a run, checked against its trace."""
  path = directory.path / run_directory.TRACE
  try:
    with participation_trace.TraceReader(path) as trace:
      return ledger.report(trace)
  except errors.DataError as error:
    raise errors.DataError(f"no epsilon is reported: {error}") from error


def _epsilon_curves(
  experiment: Experiment,
  rounds: int,
  extrapolation: extrapolation_lib.Extrapolation | None,
) -> dict[str, Any]:
  """Rounds at which to draw epsilon, and its extrapolation there if any."""
  points = np.linspace(1, rounds, min(rounds, _NUM_EPSILON_POINTS), dtype=int)
  epsilon_rounds = sorted(set(points.tolist()))
  extrapolated = {}
  if extrapolation is not None:
    config = experiment.extrapolation
    name = (
      f"extrapolated to {config.extrapolated_num_users:,} users,\n"
      f"{config.cohort_factor:g} x the cohort,"
      f" δ = {extrapolation.delta:g}, RDP"
    )
    extrapolated[name] = [
      # PLD would take seconds for each point.
      _extrapolate(experiment, r, accountants=("rdp",)).user_level.epsilon
      for r in epsilon_rounds
    ]
  return {"epsilon_rounds": epsilon_rounds, "extrapolated": extrapolated}
