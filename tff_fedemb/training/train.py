"""One training run, from its spec to the files that it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
import contextlib
import os
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
import tqdm

from tff_fedemb import errors
from tff_fedemb import progress
from tff_fedemb.data import bad_examples
from tff_fedemb.data import participation_trace
from tff_fedemb.plots import training_plots
from tff_fedemb.program import export
from tff_fedemb.program import metrics
from tff_fedemb.program import run_directory
from tff_fedemb.program import training
from tff_fedemb.report import measured_runs
from tff_fedemb.report import page as report_page
from tff_fedemb.report import training_report
from tff_fedemb.run import account
from tff_fedemb.run import experiment as experiment_lib
from tff_fedemb.run import spec as spec_lib
from tff_fedemb.run import task as task_lib
from tff_fedemb.runtime import client_error
from tff_fedemb.runtime import worker_process
from tff_fedemb.serving import lite_export
from tff_fedemb.training import backbone_files
from tff_fedemb.training import opening
from tff_fedemb.training import plan as plan_lib
from tff_fedemb.training import result as result_lib

# Prints a line without breaking the progress bar.
_say = tqdm.tqdm.write


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
    spec: Spec of the run.
    run_dir: Directory of the run: new, or of a run with the same spec.
    task: The task that `spec.task` creates, if it is at hand.
    report: Whether to write report.html into the directory. It shows no images
      that may be of users who train.
    lite: Whether to convert the model for phones, into its tflite/.
    export_backbone: Path that the backbone is written to, for
      `pretrained_backbone` of another run; it remembers its users. `None`
      writes it nowhere.

  Returns:
    The result of the run.

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
    run = opening.open_run(experiment, run_dir, export_backbone, watch)
    if run is not None:
      with contextlib.closing(run.directory):
        _report(run, *_train(run, watch), watch)
    if export_backbone is not None:
      backbone_files.export(run_dir, export_backbone)
    if lite:
      lite_export.export_run(run_dir, experiment.task)
    if report:
      report_page.write_for_run(run_dir, experiment.task)
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


def _train(
  run: opening.Run, watch: progress.Stopwatch
) -> tuple[training.TrainingState, Any]:
  """Runs the rounds left; returns the state and the model's weights."""
  loop, task = run.loop, run.experiment.task
  with loop.runtime:
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
  loop.trace.close()
  watch.end("rounds")
  return state, model_weights


def _start_from(backbone: tf.keras.Model) -> Callable[[Any], Any]:
  """Returns a function that puts a backbone's weights into a model's."""
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
  run: opening.Run,
  state: training.TrainingState,
  model_weights: Any,
  watch: progress.Stopwatch,
) -> None:
  """Evaluates and exports the model, and writes and prints what came out."""
  experiment, directory = run.experiment, run.directory
  chain = run.loop.chain
  run.evaluator.set_weights(model_weights)
  embedded = run.evaluator.embed_all()
  trained = run.evaluator.compare(embedded, run.untrained)
  watch.end("evaluation")
  try:
    # PLD takes seconds.
    with participation_trace.TraceReader(
      directory.path / run_directory.TRACE
    ) as trace:
      privacy = chain.ledger.report(trace)
      deployed = run.deployed and run.deployed.summarize(chain.ledger, trace)
  except errors.DataError as error:
    raise errors.DataError(f"no epsilon is reported: {error}") from error
  watch.end("account")
  opening.charge(run, chain.ledger, is_finished=True)
  export.export_backbone(
    run.evaluator.backbone,
    directory.path / run_directory.SAVED_MODEL,
    backbone_files.create_card(
      run.evaluator.backbone,
      embedded,
      privacy,
      experiment=experiment,
      chain=chain,
    ),
  )
  watch.end("export")
  directory.write_json(
    run_directory.EVALUATION,
    {
      measured_runs.TRAINED: trained["test"].to_json(),
      training_plots.UNTRAINED: run.untrained["test"].to_json(),
    },
  )
  summary = training_report.summarize(
    experiment,
    state=state,
    chain=chain,
    model_weights=model_weights,
    metrics=metrics.read(directory.path),
    trained=trained,
    untrained=run.untrained,
    pretrained=run.start_point.record if run.start_point else None,
    privacy=privacy,
    extrapolation=experiment.extrapolate(),
  )
  if deployed is not None:
    summary["deployment"] = deployed
  cost = account.Recomputed(chain, chain.ledger, privacy, ())
  finished = measured_runs.Run(
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
  _say(training_report.tell(finished))
