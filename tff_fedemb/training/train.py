"""One training run, from its spec to the files that it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
import contextlib
import dataclasses
import functools
import os
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tqdm

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import progress
from tff_fedemb.data import bad_examples
from tff_fedemb.data import participation_trace
from tff_fedemb.evaluation import embedding
from tff_fedemb.evaluation import verification
from tff_fedemb.plots import training_plots
from tff_fedemb.privacy import budget
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
from tff_fedemb.report import run_files
from tff_fedemb.report import training_report
from tff_fedemb.run import account
from tff_fedemb.run import deployment as deployment_lib
from tff_fedemb.run import experiment as experiment_lib
from tff_fedemb.run import spec as spec_lib
from tff_fedemb.run import task as task_lib
from tff_fedemb.runtime import base
from tff_fedemb.runtime import client_error
from tff_fedemb.runtime import worker_process
from tff_fedemb.serving import lite_export
from tff_fedemb.training import backbone_files
from tff_fedemb.training import held_out
from tff_fedemb.training import plan as plan_lib
from tff_fedemb.training import result as result_lib

# Prints a line without breaking the progress bar.
_say = tqdm.tqdm.write


@dataclasses.dataclass(frozen=True)
class _Run:
  """A run whose directory is open, before its first round."""

  experiment: experiment_lib.Experiment
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


def train(
  spec: spec_lib.RunSpec,
  *,
  run_dir: str | os.PathLike[str],
  task: task_lib.Task | None = None,
  report: bool = False,
  lite: bool = False,
  export_backbone: str | None = None,
) -> result_lib.Result:
  """Trains, evaluates, exports and reports.

  The same call goes on with a run that was interrupted, and returns the result
  of one that is complete.

  Privacy:
    As the mechanism and the participation of the spec say; `Result.epsilon` is
    of what happened in the rounds, each counted as often as it ran.

  Args:
    spec: What to run.
    run_dir: Directory of the run: new, or of a run with the same spec.
    task: The task that `spec.task` creates, if it is at hand.
    report: Whether to write report.html into the directory. It shows no images
      that may be of users who train.
    lite: Whether to convert the model for phones, into its tflite/.
    export_backbone: Where to write the backbone too, for `pretrained_backbone`
      of another run; it remembers its users. `None` writes it nowhere.

  Returns:
    What came out.

  Raises:
    errors.FieldError: If the spec does not fit the data, the directory or this
      machine; nothing is lost then.
    errors.DataError: If the data cannot be used.
    errors.DivergedError: If the model diverged.
    errors.StorageError: If files cannot be written.
  """
  watch = progress.Stopwatch()
  # TFF's worker would outlive a notebook, and complain at the end of a script.
  worker_process.end_worker_on_exit()
  run_dir = os.fspath(run_dir)
  spec = spec.with_absolute_paths()
  experiment = experiment_lib.resolve(spec, task or spec.task.create())
  watch.end("task")
  if lite:
    lite_export.check_task(experiment.task)
  if spec.task.chooses_settings:
    _say(plan_lib.tell_cost(experiment))
  with _saying_what_is_safe(run_dir):
    run = _prepare(experiment, run_dir, export_backbone, watch)
    if run is not None:
      with contextlib.closing(run.directory):
        _report(run, *_train(run, watch), watch)
    if export_backbone is not None:
      backbone_files.export(run_dir, export_backbone)
    if lite:
      lite_export.export_run(run_dir, experiment.task)
    if report:
      path = report_page.write_for_run(run_dir, experiment.task)
      _say(f"Written to {path}: the report, for a browser.")
  return result_lib.Result(spec, run_dir)


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
  experiment: experiment_lib.Experiment,
  run_dir: str,
  export_backbone: str | None,
  watch: progress.Stopwatch,
) -> _Run | None:
  """Checks what can be checked and builds the run; `None` if it is complete."""
  spec, task = experiment.spec, experiment.task
  # What is wrong is told now, not after the first round or the last one.
  experiment.create_ledger()
  experiment.extrapolate()
  if not os.path.exists(os.path.join(run_dir, chain_lib.NAME)):
    experiment.check_budget()
  runtime = spec.runtime.create()
  runtime.require_paths(_find_paths(spec.task))
  watch.end("checks")
  by_split, sample = held_out.load_images(task, spec.evaluation)
  watch.end("held_out_images")
  tf.keras.utils.set_random_seed(spec.seed)
  start_point = backbone_files.load_start(
    experiment.create_backbone, spec.pretrained_backbone, run_dir
  )
  backbone_files.check_export(export_backbone, run_dir)
  directory = run_directory.RunDirectory(
    run_dir, spec.to_json(), varying=spec_lib.varying(spec)
  )
  chain = chain_checks.open_chain(run_dir)
  if directory.read_json(run_directory.SUMMARY) is not None:
    _say(f"This run is complete; see {directory.path / run_directory.SUMMARY}.")
    report_page.write_release(run_dir)
    directory.close()
    return None
  for line in _describe(experiment, by_split):
    _say(line)
  trace = participation_trace.TraceWriter(
    directory.path / run_directory.TRACE, len(task.train_users)
  )
  key = spec.sampling_seed
  if key is None and experiment.deployed is None:
    key = sampling_key.read_or_create(
      directory.path / run_directory.CHECKPOINTS, is_new=not trace.num_rounds
    )
  # Keras disowns layers made before others are made inside a TFF computation:
  # the process comes first.
  watch.end("files")
  process = experiment.build_process()
  watch.end("process")
  tf.keras.utils.set_random_seed(spec.seed)
  evaluator = held_out.Evaluator(
    experiment.create_backbone(), by_split, sample, spec.evaluation.metrics
  )
  untrained = evaluator.evaluate_all()
  if start_point is not None and start_point.weights is not None:
    evaluator.backbone.set_weights(start_point.weights)
    backbone_files.record_start(
      start_point, evaluator.evaluate_all(), directory
    )
  watch.end("untrained_evaluation")
  deployed = deployment_lib.open_rounds(
    experiment.deployed,
    experiment.participation,
    lambda: deployment_lib.find_work(task, spec.algorithm.local, process),
    directory,
  )
  draw = deployed.draw if deployed else None
  _begin(chain, experiment, directory, _count_parameters(process))
  rounds_done = max(run_directory.checkpointed_rounds(run_dir), default=0)
  _charge(experiment, directory, chain, chain.ledger_to_the_end(rounds_done))
  return _Run(
    experiment,
    directory,
    chain,
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
  directory: run_directory.RunDirectory,
  num_parameters: int,
) -> None:
  """Begins the chain of a run, or goes on with it if nothing has changed."""
  chain.begin(
    experiment.create_ledger(num_parameters).with_rounds(
      experiment.mechanism.round_event, experiment.spec.rounds
    ),
    files=chain_checks.digest_files(directory.path),
    users=experiment.task.train_users.digest,
    code_version=run_directory.find_code_version(),
  )


def _charge(
  experiment: experiment_lib.Experiment,
  directory: run_directory.RunDirectory,
  chain: chain_lib.Chain,
  ledger: ledger_lib.Ledger,
  *,
  is_finished: bool = False,
) -> None:
  """Charges the run to the budget that it shares with others, if any."""
  path = experiment.spec.privacy_budget
  if path is None:
    return
  charged = budget.charge(
    path,
    ledger,
    run_id=chain.run_id,
    run_dir=os.path.abspath(directory.path),
    users=experiment.task.train_users.digest,
    is_finished=is_finished,
  )
  _say(
    f"With this run epsilon {charged.spent:.4g} of {charged.epsilon:.4g} at"
    f" delta {charged.delta:g} is spent in {path}."
  )


def _find_paths(source: task_lib.TaskSource) -> dict[str, str]:
  """What clients read, wherever they run, by the field that names it."""
  return {
    field.flag: os.path.abspath(value)
    for _, field, value in config_lib.walk(source)
    if field.path and value
  }


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
        " max_held_out_images=0 takes all."
      )
  if claim != claim.with_secret_schedule():
    yield (
      "WARNING: sampling_seed makes it known who takes part when. Sampling"
      " amplifies nothing in this run; without it the draw is secret."
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


def _train(
  run: _Run, watch: progress.Stopwatch
) -> tuple[training.TrainingState, Any]:
  """Runs the rounds left; returns the state and the model's weights."""
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
    config=run.experiment.spec,
    name_skipped=lambda clients: [
      line for client in clients for line in task.find_bad_examples(client)
    ],
    say=_say,
  )
  with run.runtime:
    state = loop.start(_start_from(run.evaluator.backbone))
    watch.seconds["earlier_programs"] = state.wall_seconds
    watch.end("compilation")
    try:
      state = loop.run(state)
    except client_error.ClientError as error:
      lines = task.find_bad_examples(error.client_id)
      if not lines:
        raise
      raise errors.DataError(
        f"data must be readable, found {bad_examples.summarize(lines)}."
        " on_bad_example=skip leaves out what is bad; the same command goes"
        " on from the last whole round once the data are mended."
      ) from error
    model_weights = loop.weights(state)
  run.trace.close()
  watch.end("rounds")
  return state, model_weights


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
  watch: progress.Stopwatch,
) -> None:
  """Evaluates and exports the model, and writes and prints what came out."""
  experiment, directory = run.experiment, run.directory
  run.evaluator.set_weights(model_weights)
  embedded = run.evaluator.embed_all()
  trained = run.evaluator.compare(embedded, run.untrained)
  watch.end("evaluation")
  privacy = _account(run.chain.ledger, directory)
  watch.end("account")
  _charge(experiment, directory, run.chain, run.chain.ledger, is_finished=True)
  export.export_backbone(
    run.evaluator.backbone,
    directory.path / run_directory.SAVED_MODEL,
    backbone_files.create_card(
      run.evaluator.backbone,
      embedded,
      privacy,
      experiment=experiment,
      chain=run.chain,
    ),
  )
  watch.end("export")
  directory.write_json(
    run_directory.EVALUATION,
    {
      run_files.TRAINED: trained["test"].to_json(),
      training_plots.UNTRAINED: run.untrained["test"].to_json(),
    },
  )
  summary = training_report.summarize(
    experiment,
    state=state,
    chain=run.chain,
    model_weights=model_weights,
    metrics=metrics.read(directory.path),
    trained=trained,
    untrained=run.untrained,
    pretrained=run.start_point.record if run.start_point else None,
    privacy=privacy,
    extrapolation=experiment.extrapolate(),
  )
  if run.deployed is not None:
    summary["deployment"] = deployment_lib.summarize(
      run.deployed, run.chain.ledger, directory
    )
  cost = account.Recomputed(run.chain, run.chain.ledger, privacy, ())
  finished = run_files.Run(
    directory.path, experiment.spec, summary, account=cost
  )
  watch.end("extrapolation")
  training_report.draw(finished)
  watch.end("pictures")
  seconds = dict(watch.seconds)
  summary["seconds_by_part"] = seconds
  summary["wall_seconds"] = sum(seconds.values()) - seconds["process_before"]
  directory.write_json(run_directory.SUMMARY, summary)
  report_page.write_release(directory.path, cost)
  for line in training_report.tell(finished):
    _say(line)


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
