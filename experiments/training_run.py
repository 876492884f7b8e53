"""One training run, from its parts to the files that it leaves.

What `run_federated` and `run_centralized` have in common.
"""

from collections.abc import Callable
import dataclasses
import functools
import json
import sys
import time
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from experiments import backbone_files
from experiments import command_line
from experiments import data_problems
from experiments import held_out
from experiments import smoke
from experiments import training_flags
from experiments import training_output
from tasks import registry as task_registry
from tasks import task as task_lib
from tff_fedemb.aggregators import mechanism as mechanism_lib
from tff_fedemb.data import participation_trace
from tff_fedemb.data.participation import participation as participation_lib
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
    extrapolated_num_users: Population to extrapolate the cost to, 0 for none.
    extrapolated_cohort_factor: Ratio of the cohorts.
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
  extrapolated_num_users: int = 0
  extrapolated_cohort_factor: float = 64.0
  export_backbone: str | None = None


def create_task() -> task_lib.Task:
  """Creates the task that the flags describe."""
  name, data_dir = training_flags.TASK.value, training_flags.DATA_DIR.value
  if training_flags.SMOKE.value:
    if not smoke.is_among(sys.argv[1:]):
      raise command_line.UsageError(
        "--smoke must be given on the command line, found it in a flagfile."
      )
    if data_dir is not None:
      raise command_line.UsageError(
        "--data_dir must not be given with --smoke, which makes its own,"
        f" found {data_dir}."
      )
    data_dir = command_line.call_with_flags(
      smoke.prepare_data, name, training_flags.CACHE_DIR.value
    )
  config = command_line.call_with_flags(
    task_lib.TaskConfig,
    data_dir,
    training_flags.CACHE_DIR.value,
    task_variant=training_flags.TASK_VARIANT.value,
    image_size=training_flags.IMAGE_SIZE.value,
    on_bad_example=training_flags.ON_BAD_EXAMPLE.value,
  )
  return command_line.call_with_flags(task_registry.create_task, name, config)


def create_backbone_fn(task: task_lib.Task) -> Callable[[], tf.keras.Model]:
  """Creates the function that makes the backbone that the flags describe."""
  create = functools.partial(
    training_flags.BACKBONE.create().create,
    task.image_shape,
    default=task.default_backbone,
  )
  command_line.call_with_flags(create)
  return create


def create_ledger(experiment: Experiment) -> ledger_lib.Ledger:
  """Creates the empty ledger of a run."""
  claim = experiment.participation
  # Refused now, not after the first round.
  composition.check_mechanism_event(experiment.mechanism.round_event, claim)
  return ledger_lib.Ledger(
    claim,
    delta=experiment.delta,
    accountants=epsilon_lib.accountants_of_run(
      claim, experiment.mechanism.noise_multiplier
    ),
  )


def extrapolate(
  experiment: Experiment,
  ledger: ledger_lib.Ledger,
  rounds: int,
  *,
  accountants: tuple[str, ...] | None = None,
) -> extrapolation_lib.Extrapolation | None:
  """Cost of the same noise on the mean with more users; `None` if no noise."""
  if (
    not experiment.mechanism.noise_multiplier
    or not experiment.extrapolated_num_users
  ):
    return None
  return extrapolation_lib.extrapolate(
    rounds=rounds,
    noise_multiplier=experiment.mechanism.noise_multiplier,
    participation=ledger.participation,
    strategy=experiment.mechanism.strategy,
    num_users=experiment.extrapolated_num_users,
    cohort_factor=experiment.extrapolated_cohort_factor,
    delta=planning.default_delta(experiment.extrapolated_num_users),
    accountants=accountants,
  )


def execute(experiment: Experiment, settings: dict[str, Any]) -> None:
  """Trains, evaluates, exports and reports.

  Args:
    experiment: What to run.
    settings: The flags that identify the run.
  """
  start = time.perf_counter()
  config = command_line.call_with_flags(
    training.TrainingConfig,
    rounds=training_flags.ROUNDS.value,
    evaluate_every=training_flags.EVALUATE_EVERY.value,
    checkpoint_every=training_flags.CHECKPOINT_EVERY.value,
  )
  ledger = command_line.call_with_flags(create_ledger, experiment)
  command_line.call_with_flags(extrapolate, experiment, ledger, config.rounds)
  runtime = training_flags.RUNTIME.create().create()
  task = experiment.task
  by_split, sample = command_line.call_with_flags(
    held_out.load_images, task, training_flags.MAX_EVALUATION_IMAGES.value
  )
  tf.keras.utils.set_random_seed(training_flags.SEED.value)
  run_dir = training_flags.RUN_DIR.value
  start_point = backbone_files.load_start(
    experiment.create_backbone,
    training_flags.PRETRAINED_BACKBONE.value,
    run_dir,
  )
  backbone_files.check_export(experiment.export_backbone, run_dir)
  directory = command_line.call_with_flags(
    run_directory.RunDirectory, run_dir, settings
  )
  if directory.read_json(run_directory.SUMMARY) is not None:
    training_output.say(
      f"This run is complete; see {directory.path / run_directory.SUMMARY}."
    )
    backbone_files.export(directory, experiment.export_backbone)
    return
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
  tf.keras.utils.set_random_seed(training_flags.SEED.value)
  evaluator = held_out.Evaluator(experiment.create_backbone(), by_split, sample)
  untrained = evaluator.evaluate_all()
  if start_point is not None and start_point.weights is not None:
    evaluator.backbone.set_weights(start_point.weights)
    backbone_files.record_start(
      start_point, evaluator.evaluate_all(), directory
    )
  start_weights = evaluator.backbone.get_weights()

  trace = command_line.call_with_flags(
    participation_trace.TraceWriter,
    directory.path / run_directory.TRACE,
    len(task.train_users),
  )
  metrics_log = metrics.MetricsLog(directory.path)
  loop = training.TrainingLoop(
    process,
    runtime=runtime,
    users=task.train_users,
    participation=experiment.participation,
    seed=training_flags.SEED.value,
    round_event=experiment.mechanism.round_event,
    ledger=ledger,
    trace=trace,
    evaluate_fn=evaluator.validate,
    checkpoints=checkpoints.Checkpoints(
      directory.path / backbone_files.CHECKPOINTS, warn=training_output.say
    ),
    metrics=metrics_log,
    config=config,
    publish_ledger=lambda ledger: directory.write_json(
      run_directory.LEDGER, json.loads(ledger.to_json())
    ),
    name_skipped=lambda clients: data_problems.find_in_clients(task, clients),
    say=training_output.say,
  )

  def start_from_backbone(model_weights):
    evaluator.backbone.set_weights(start_weights)
    backbone = tff.learning.models.ModelWeights.from_model(evaluator.backbone)
    head = tuple(model_weights.trainable)[len(backbone.trainable) :]
    return tff.learning.models.ModelWeights(
      (*(v.numpy() for v in backbone.trainable), *head),
      tuple(v.numpy() for v in backbone.non_trainable),
    )

  with runtime:
    state = loop.start(start_from_backbone)
    seconds_before = state.wall_seconds
    try:
      state = loop.run(state)
    except participation_trace.TraceError as error:
      raise command_line.UsageError(str(error)) from error
    except base.ClientError as error:
      data_problems.explain(task, error)
      raise
    model_weights = loop.weights(state)
  evaluator.set_weights(model_weights)
  trained = evaluator.evaluate_all()
  export.export_backbone(
    evaluator.backbone, directory.path / backbone_files.SAVED_MODEL
  )
  extrapolation = extrapolate(experiment, ledger, config.rounds)
  trace.close()
  # PLD takes seconds: once for all that tell of it.
  privacy = _report(state.ledger, directory)
  rounds = metrics_log.read()
  summary.draw_plots(
    directory.path / "plots",
    metrics=rounds,
    ledger=state.ledger,
    privacy=privacy,
    trained=trained,
    untrained=untrained,
    title=f"{task.name}, {experiment.name}",
    **_epsilon_curves(experiment, state, extrapolation),
  )
  report = summary.build_summary(
    state=state,
    trained=trained,
    untrained=untrained,
    pretrained=start_point.record if start_point else None,
    privacy=privacy,
    extrapolation=extrapolation,
    num_private_parameters=_count(model_weights.trainable),
    wall_seconds=seconds_before + time.perf_counter() - start,
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
  directory.close()


def _count(weights) -> int:
  return sum(np.size(value) for value in weights)


def _report(
  ledger: ledger_lib.Ledger, directory: run_directory.RunDirectory
) -> report_lib.PrivacyReport:
  """The account of a run, checked against its trace."""
  path = directory.path / run_directory.TRACE
  try:
    with participation_trace.TraceReader(path) as trace:
      return ledger.report(trace)
  except (
    participation_trace.TraceError,
    participation_lib.ClaimError,
  ) as error:
    raise command_line.UsageError(f"no epsilon is reported: {error}") from error


def _epsilon_curves(experiment, state, extrapolation) -> dict[str, Any]:
  """Rounds at which to draw epsilon, and its extrapolation there if any."""
  rounds = state.rounds_done
  epsilon_rounds = sorted(
    {*np.linspace(1, rounds, min(rounds, 12), dtype=int).tolist()}
  )
  extrapolated = {}
  if extrapolation is not None:
    name = (
      f"extrapolated to {experiment.extrapolated_num_users:,} users,\n"
      f"{experiment.extrapolated_cohort_factor:g} x the cohort,"
      f" δ = {extrapolation.delta:g}, RDP"
    )
    extrapolated[name] = [
      # PLD would take seconds for each point.
      extrapolate(
        experiment, state.ledger, r, accountants=("rdp",)
      ).user_level.epsilon
      for r in epsilon_rounds
    ]
  return {"epsilon_rounds": epsilon_rounds, "extrapolated": extrapolated}
