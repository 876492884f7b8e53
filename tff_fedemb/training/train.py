"""One training run, from its parts to the files that it leaves.

What `run_federated` and `run_centralized` have in common.
"""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import dataclasses
import functools
import os
import time
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tqdm

from binaries import training_flags
from tasks import task_config
from tff_fedemb import errors
from tff_fedemb.data import bad_examples
from tff_fedemb.data import participation_trace
from tff_fedemb.evaluation import comparison
from tff_fedemb.evaluation import embedding
from tff_fedemb.evaluation import verification
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.privacy import report as report_lib
from tff_fedemb.program import chain as chain_lib
from tff_fedemb.program import chain_checks
from tff_fedemb.program import checkpoints
from tff_fedemb.program import deployed_rounds
from tff_fedemb.program import export
from tff_fedemb.program import metrics
from tff_fedemb.program import run_directory
from tff_fedemb.program import sampling_key
from tff_fedemb.program import training
from tff_fedemb.report import page as report_page
from tff_fedemb.report import training_report
from tff_fedemb.run import account as account_run
from tff_fedemb.run import deployment as deployment_run
from tff_fedemb.run import experiment as experiment_lib
from tff_fedemb.run import task as task_lib
from tff_fedemb.runtime import base
from tff_fedemb.runtime import client_error
from tff_fedemb.serving import lite_export
from tff_fedemb.training import backbone_files
from tff_fedemb.training import dry_run
from tff_fedemb.training import held_out
from tff_fedemb.training import photo_choices as plan

# Prints a line without breaking the progress bar.
_say = tqdm.tqdm.write


@dataclasses.dataclass(frozen=True)
class _Run:
  """A run whose directory is open, before its first round."""

  experiment: experiment_lib.Experiment
  settings: training_flags.Settings
  directory: run_directory.RunDirectory
  chain: chain_lib.Chain
  runtime: base.Runtime
  # Takes the identifiers of virtual clients.
  process: tff.learning.templates.LearningProcess
  # Its backbone has the weights that training starts from.
  evaluator: held_out.Evaluator
  untrained: dict[str, verification.VerificationResult]
  start_point: backbone_files.Start | None
  # Who takes part, if the participation does not draw it.
  deployed: deployed_rounds.DeployedRounds | None
  # From a round's number to its virtual clients, and who they were.
  draw: Callable[[int], list[np.ndarray]]
  trace: participation_trace.TraceWriter


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


def execute(
  experiment: experiment_lib.Experiment, settings: training_flags.Settings
) -> None:
  """Trains, evaluates, exports and reports, or tells what that would take.

  Args:
    experiment: What to run.
    settings: What both programs are set by.
  """
  start = time.perf_counter()
  if settings.run.sampling_seed is not None:
    if experiment.deployed is not None:
      raise errors.FieldError(
        "sampling_seed",
        "not be given with a deployment, whose users are not drawn",
        settings.run.sampling_seed,
        "deployment_seed is that of the devices.",
      )
    experiment = dataclasses.replace(
      experiment, participation=experiment.participation.with_known_schedule()
    )
  if settings.run.dry_run:
    dry_run.execute(experiment, settings)
    return
  if settings.run.task in plan.TASKS:
    _say(dry_run.tell_cost(experiment, settings.training.rounds))
  with _saying_what_is_safe(settings.run.run_dir):
    run = _prepare(experiment, settings)
    if run is not None:
      with contextlib.closing(run.directory):
        _report(run, *_train(run), start)
    if settings.run.export:
      lite_export.export_run(settings.run.run_dir, experiment.task)
    if settings.run.report:
      path = report_page.write_for_run(settings.run.run_dir, experiment.task)
      _say(f"Written to {path}: the report, for a browser.")


@contextlib.contextmanager
def _saying_what_is_safe(run_dir: str) -> Iterator[None]:
  """Ends a run whose files cannot be written with what is left of it."""
  try:
    yield
  except (OSError, errors.StorageError) as error:
    if isinstance(error, OSError):
      error = errors.StorageError.of(error)
    rounds = max(run_directory.checkpointed_rounds(run_dir), default=None)
    safe = "No checkpoint is there yet; with more room, the same command starts"
    if rounds is not None:
      safe = (
        f"The checkpoint after round {rounds} is safe, and so is the account"
        " of all rounds that ran; with more room, the same command goes on from"
        " there"
      )
    raise errors.StorageError(f"{error} {safe}.") from error


def _prepare(
  experiment: experiment_lib.Experiment, settings: training_flags.Settings
) -> _Run | None:
  """Checks what can be checked and builds the run; `None` if it is complete."""
  task, run_dir = experiment.task, settings.run.run_dir
  # Refused now, not after the first round or the last one.
  experiment.create_ledger()
  experiment.extrapolate(settings.training.rounds)
  runtime = settings.runtime.create()
  runtime.require_paths(_find_paths(settings.data))
  by_split, sample = held_out.load_images(
    task, settings.run.max_evaluation_images, settings.run.num_held_out_images
  )
  tf.keras.utils.set_random_seed(settings.run.seed)
  start_point = backbone_files.load_start(
    experiment.create_backbone, settings.run.pretrained_backbone, run_dir
  )
  backbone_files.check_export(experiment.export_backbone, run_dir)
  directory = run_directory.RunDirectory(run_dir, settings.record)
  chain = chain_checks.open_chain(run_dir)
  if directory.read_json(run_directory.SUMMARY) is not None:
    _say(f"This run is complete; see {directory.path / run_directory.SUMMARY}.")
    report_page.write_release(run_dir)
    backbone_files.export(directory, experiment.export_backbone)
    directory.close()
    return None
  for line in _describe(experiment, by_split):
    _say(line)
  trace = participation_trace.TraceWriter(
    directory.path / run_directory.TRACE, len(task.train_users)
  )
  key = settings.run.sampling_seed
  if key is None and experiment.deployed is None:
    key = sampling_key.read_or_create(
      directory.path / run_directory.CHECKPOINTS, is_new=not trace.num_rounds
    )
  # Keras disowns layers made before others are made inside a TFF computation:
  # the process comes first.
  process = tff.simulation.compose_dataset_computation_with_learning_process(
    task.build_dataset_computation(
      settings.local_training.max_examples_per_client
    ),
    experiment.build_process(),
  )
  tf.keras.utils.set_random_seed(settings.run.seed)
  evaluator = held_out.Evaluator(experiment.create_backbone(), by_split, sample)
  untrained = evaluator.evaluate_all()
  if start_point is not None and start_point.weights is not None:
    evaluator.backbone.set_weights(start_point.weights)
    backbone_files.record_start(
      start_point, evaluator.evaluate_all(), directory
    )
  deployed = deployment_run.open_rounds(
    experiment.deployed,
    experiment.participation,
    lambda: deployment_run.find_work(task, settings.local_training, process),
    directory,
  )
  draw = deployed.draw if deployed else None
  return _Run(
    experiment,
    settings,
    directory,
    _begin(chain, experiment, settings, directory, _count_parameters(process)),
    runtime,
    process,
    evaluator,
    untrained,
    start_point,
    deployed,
    draw or functools.partial(experiment.participation.sample, key=key),
    trace,
  )


def _begin(
  chain: chain_lib.Chain,
  experiment: experiment_lib.Experiment,
  settings: training_flags.Settings,
  directory: run_directory.RunDirectory,
  num_parameters: int,
) -> chain_lib.Chain:
  """Begins the chain of a run, or goes on with it if nothing has changed."""
  chain.begin(
    experiment.create_ledger(num_parameters).with_rounds(
      experiment.mechanism.round_event, settings.training.rounds
    ),
    files=chain_checks.digest_files(directory.path),
    users=experiment.task.train_users.digest,
    code_version=run_directory.find_code_version(),
  )
  return chain


def _find_paths(config: task_config.TaskConfig) -> dict[str, str]:
  """What clients read, wherever they run, by the flags that name it."""
  names = ("data_dir", "table", "cache_dir")
  paths = {name: getattr(config, name) for name in names}
  return {name: os.path.abspath(path) for name, path in paths.items() if path}


def _describe(
  experiment: experiment_lib.Experiment,
  held_out_images: Mapping[str, embedding.LabelledImages],
) -> Iterator[str]:
  """What is trained and evaluated on, and what is odd about that."""
  task, claim = experiment.task, experiment.participation
  yield from task.describe()
  for split, images in held_out_images.items():
    if images.num_found is not None:
      yield (
        f"Evaluating on {len(images.labels):,} of {images.num_found:,} {split}"
        " images, drawn at random and always the same;"
        " --max_held_out_images=0 takes all."
      )
  if claim != claim.with_secret_schedule():
    yield (
      "WARNING: --sampling_seed makes it known who takes part when. Sampling"
      " amplifies nothing in this run; leave the flag out for a secret draw."
    )
  if task.bad_examples.lines:
    yield f"left out {bad_examples.summarize(task.bad_examples.lines)}."


def _count_parameters(process: tff.learning.templates.LearningProcess) -> int:
  """Numbers of an update, and so of the sum that gets the noise."""
  state = process.initialize.type_signature.result.member
  shapes = tff.types.type_to_tf_tensor_specs(
    state.global_model_weights.trainable
  )
  return sum(spec.shape.num_elements() for spec in tf.nest.flatten(shapes))


def _train(run: _Run) -> tuple[training.TrainingState, Any, float]:
  """Runs the rounds left; returns state, weights, earlier programs' seconds."""
  task, directory = run.experiment.task, run.directory
  loop = training.TrainingLoop(
    process=run.process,
    runtime=run.runtime,
    users=task.train_users,
    draw=run.draw,
    chain=run.chain,
    trace=run.trace,
    evaluate_fn=run.evaluator.validate,
    checkpoints=checkpoints.Checkpoints(
      directory.path / run_directory.CHECKPOINTS, warn=_say
    ),
    metrics=metrics.MetricsLog(directory.path),
    config=run.settings.training,
    name_skipped=lambda clients: [
      line for client in clients for line in task.find_bad_examples(client)
    ],
    say=_say,
  )
  with run.runtime:
    state = loop.start(_start_from(run.evaluator.backbone))
    seconds_before = state.wall_seconds
    try:
      state = loop.run(state)
    except client_error.ClientError as error:
      lines = task.find_bad_examples(error.client_id)
      if not lines:
        raise
      raise errors.DataError(
        f"data must be readable, found {bad_examples.summarize(lines)}."
        " --on_bad_example=skip leaves out what is bad; the same command goes"
        " on from the last whole round once the data are mended."
      ) from error
    model_weights = loop.weights(state)
  run.trace.close()
  return state, model_weights, seconds_before


def _start_from(backbone: tf.keras.Model) -> Callable[[Any], Any]:
  """From a process's first model weights to those of a backbone, and a head."""
  weights = backbone.get_weights()

  def start_from_backbone(model_weights):
    # Evaluations may have changed them in between.
    backbone.set_weights(weights)
    start = tff.learning.models.ModelWeights.from_model(backbone)
    start = start.convert_variables_to_arrays()
    head = tuple(model_weights.trainable)[len(start.trainable) :]
    return tff.learning.models.ModelWeights(
      (*start.trainable, *head), tuple(start.non_trainable)
    )

  return start_from_backbone


def _report(
  run: _Run,
  state: training.TrainingState,
  model_weights: Any,
  seconds_before: float,
  start: float,
) -> None:
  """Evaluates and exports the model, and writes and prints what came out."""
  experiment, directory = run.experiment, run.directory
  run.evaluator.set_weights(model_weights)
  embedded = run.evaluator.embed_all()
  trained = {
    split: comparison.warn_if_no_better(some.evaluate(), run.untrained[split])
    for split, some in embedded.items()
  }
  privacy = _account(run.chain.ledger, directory)
  export.export_backbone(
    run.evaluator.backbone,
    directory.path / run_directory.SAVED_MODEL,
    backbone_files.create_card(
      run.evaluator.backbone,
      embedded,
      privacy,
      experiment=experiment,
      command=run.settings.show_command(),
      chain=run.chain,
    ),
  )
  outcome = training_report.Outcome(
    experiment=experiment,
    state=state,
    chain=run.chain,
    model_weights=model_weights,
    metrics=metrics.read(directory.path),
    trained=trained,
    untrained=run.untrained,
    pretrained=run.start_point.record if run.start_point else None,
    privacy=privacy,
    extrapolation=experiment.extrapolate(run.settings.training.rounds),
  )
  outcome.draw_plots(directory.path / "plots")
  directory.write_json(run_directory.EVALUATION, outcome.evaluation_to_json())
  summary = outcome.to_json(
    wall_seconds=seconds_before + time.perf_counter() - start
  )
  deployed = None
  if run.deployed is not None:
    deployed = deployment_run.summarize(
      run.deployed, run.chain.ledger, directory
    )
    summary["deployment"] = deployed
    outcome.draw_deployment(directory.path)
  directory.write_json(run_directory.SUMMARY, summary)
  report_page.write_release(
    directory.path,
    account_run.Recomputed(run.chain, run.chain.ledger, privacy, ()),
  )
  for line in outcome.to_lines(directory.path, deployed):
    _say(line)
  backbone_files.export(directory, experiment.export_backbone)


def _account(
  ledger: ledger_lib.Ledger, directory: run_directory.RunDirectory
) -> report_lib.PrivacyReport:
  """The account of a run, checked against its trace; PLD takes seconds."""
  path = directory.path / run_directory.TRACE
  try:
    with participation_trace.TraceReader(path) as trace:
      return ledger.report(trace)
  except errors.DataError as error:
    raise errors.DataError(f"no epsilon is reported: {error}") from error
