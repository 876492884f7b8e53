"""`fe.train`: one run, from its spec to the files that it leaves."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import os

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb import progress
from tff_fedemb.records import run_directory
from tff_fedemb.report import account
from tff_fedemb.report import page as report_page
from tff_fedemb.runtime import worker_process
from tff_fedemb.serving import lite_export
from tff_fedemb.spec import experiment as experiment_lib
from tff_fedemb.spec import spec as spec_lib
from tff_fedemb.spec import task as task_lib
from tff_fedemb.training import models
from tff_fedemb.training import plan as plan_lib
from tff_fedemb.training import result as result_lib
from tff_fedemb.training import run as run_lib


def train(
  spec: spec_lib.RunSpec,
  *,
  run_dir: str | os.PathLike[str],
  task: task_lib.Task | None = None,
  report: bool = False,
  lite: bool = False,
  export_backbone: str | None = None,
  is_trial: bool = False,
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
    is_trial: Whether a tuning will compare the run with others. Then nothing
      but its private models and the images that the best is chosen by may end
      it early.

  Returns:
    The result of the run.

  Raises:
    errors.FieldError: If the spec does not fit the data, the directory or this
      machine; nothing is lost then.
    errors.DataError: If the data cannot be used.
    errors.DivergedError: If the model diverged.
    errors.StorageError: If files cannot be written.

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
    >>> result = fe.train(spec, run_dir="runs/first")
    >>> result.epsilon, result.recall_at_far(1e-3)
  """
  watch = progress.Stopwatch.of_process()
  checks.check_not_forked()
  checks.check_type("spec", spec, spec_lib.RunSpec)
  # TFF's worker would outlive a notebook, and complain at the end of a script.
  worker_process.end_worker_on_exit()
  run_dir = os.fspath(run_dir)
  spec = spec.with_absolute_paths()
  experiment = experiment_lib.resolve(spec, task or spec.task.create())
  watch.end("task")
  if lite:
    lite_export.check_task(experiment.task)
  if spec.task.chooses_settings:
    progress.say(plan_lib.tell_cost(experiment))
  with _saying_what_is_safe(run_dir):
    if account.is_complete(run_dir):
      with contextlib.closing(run_lib.open_directory(spec, run_dir)):
        account.open_chain(run_dir)
        if export_backbone is not None and not os.path.exists(export_backbone):
          models.check_export(export_backbone, run_dir)
        summary = f"{run_dir}/{run_directory.SUMMARY}"
        progress.say(f"This run is complete; see {summary}.")
        report_page.restore_release(run_dir)
    else:
      run = run_lib.Run(
        experiment, run_dir, export_backbone, watch, is_trial=is_trial
      )
      with contextlib.closing(run.directory):
        run.train()
        run.report()
    if export_backbone is not None:
      models.export(run_dir, export_backbone)
    if lite:
      lite_export.export_run(run_dir, experiment.task)
    if report:
      report_page.write_for_run(run_dir, experiment.task)
  return result_lib.Result(spec, run_dir)


@contextlib.contextmanager
def _saying_what_is_safe(run_dir: str) -> Iterator[None]:
  """Says how a run can go on if its files cannot be written.

  Args:
    run_dir: Directory of the run.

  Raises:
    errors.StorageError: If the disk is full, or in place of such an error;
      names the last round that is saved.
    OSError: If an error of the system has another cause.
  """
  try:
    yield
  except (OSError, errors.StorageError) as error:
    if isinstance(error, OSError):
      error = errors.StorageError.of(error)
    rounds = max(run_directory.checkpointed_rounds(run_dir), default=0)
    raise errors.StorageError(
      f"{error} With more room, the same command goes on after round {rounds};"
      " the account of all rounds that ran is safe."
    ) from error
