"""One run: the checks before it, its rounds, and the files that it leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
import functools
import os
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import progress
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.accounting import report as report_lib
from tff_fedemb.data import bad_examples
from tff_fedemb.evaluation import comparison
from tff_fedemb.evaluation import embedding
from tff_fedemb.evaluation import verification
from tff_fedemb.participation import participation_trace
from tff_fedemb.planning import budget
from tff_fedemb.plots import training_plots
from tff_fedemb.records import chain as chain_lib
from tff_fedemb.records import export
from tff_fedemb.records import kept_model
from tff_fedemb.records import metrics
from tff_fedemb.records import release
from tff_fedemb.records import run_directory
from tff_fedemb.records import sampling_key
from tff_fedemb.report import account
from tff_fedemb.report import finished_run
from tff_fedemb.report import page as report_page
from tff_fedemb.report import training_report
from tff_fedemb.rounds import loop as loop_lib
from tff_fedemb.runtime import base
from tff_fedemb.runtime import client_error
from tff_fedemb.spec import deployment as deployment_lib
from tff_fedemb.spec import experiment as experiment_lib
from tff_fedemb.spec import spec as spec_lib
from tff_fedemb.training import handing_over
from tff_fedemb.training import models
from tff_fedemb.training import plan as plan_lib


def open_directory(
  spec: spec_lib.RunSpec, run_dir: str
) -> run_directory.RunDirectory:
  """Opens the directory of a run of this spec, which no other run may have.

  Args:
    spec: Spec of the run; fields that decide no result may differ from those of
      a run that is there.
    run_dir: Path of the directory.

  Returns:
    The open directory, for the caller to close.

  Raises:
    errors.FieldError: As `run_directory.RunDirectory`.
  """
  varying = spec_lib.varying(spec)
  return run_directory.RunDirectory(run_dir, spec.to_json(), varying=varying)


class Run:
  """A run from its checks to its report.

  Create it, then call `train` and `report`, and close its directory.

  Attributes:
    directory: Its directory, which is open.
  """

  def __init__(
    self,
    experiment: experiment_lib.Experiment,
    run_dir: str,
    export_backbone: str | None,
    watch: progress.Stopwatch,
    *,
    is_trial: bool,
  ):
    """Checks everything, and builds what the first round needs.

    Settings are checked before images are loaded, and nothing is written before
    the directory is opened. Then the untrained backbone is evaluated, and a
    privacy budget is charged.

    Args:
      experiment: The run, its task at hand.
      run_dir: Path of its directory.
      export_backbone: Path that the backbone will be written to; None for none.
      watch: Times the parts of the program.
      is_trial: Whether a tuning will compare the run with others.

    Raises:
      errors.FieldError: If the spec does not fit the data, the directory or
        this machine.
      errors.DataError: If the held-out images cannot be used.
    """
    self._experiment, self._watch = experiment, watch
    self._is_trial = is_trial
    spec = experiment.spec
    runtime = self._check(run_dir)
    watch.end("checks")
    by_split, sample = models.load_images(experiment.task, spec.evaluation)
    watch.end("held_out_images")
    tf.keras.utils.set_random_seed(spec.seed)
    self._start = models.load_start(
      experiment.create_backbone,
      spec.pretrained_backbone,
      run_dir,
      is_needed=spec.export_start_share > 0,
    )
    models.check_export(export_backbone, run_dir)
    self.directory = open_directory(spec, run_dir)
    try:
      self._prepare(runtime, by_split, sample)
    except BaseException:
      # A notebook keeps the error, and with it this run and its lock.
      self.directory.close()
      raise

  def _prepare(
    self,
    runtime: base.Runtime,
    by_split: Mapping[str, embedding.LabelledImages],
    sample: embedding.LabelledImages,
  ) -> None:
    """Builds what the first round needs, and charges the budget.

    Args:
      runtime: Runtime of the rounds.
      by_split: Held-out images by split.
      sample: Held-out images for evaluations during training.

    Raises:
      errors.FieldError: If a file of the run contradicts its chain, its key is
        lost, or its budget would be overspent.
      errors.DivergedError: If the embeddings at the start are not finite.
    """
    experiment, watch = self._experiment, self._watch
    run_dir = self.directory.path
    chain = account.open_chain(run_dir)
    for line in plan_lib.tell_run(experiment, by_split):
      progress.say(line)
    trace = participation_trace.TraceWriter(
      run_dir / run_directory.TRACE, len(experiment.task.train_users)
    )
    key = self._read_key(is_new=not trace.num_rounds)
    watch.end("files")
    # The process comes first: Keras disowns layers that were made before others
    # are made inside a TFF computation.
    process = experiment.build_process()
    watch.end("process")
    self._evaluate_start(by_split, sample)
    watch.end("untrained_evaluation")
    self._loop = self._create_loop(process, runtime, chain, trace, key)
    rounds_done = max(run_directory.checkpointed_rounds(run_dir), default=0)
    self._charge(chain.ledger_to_the_end(rounds_done), tells=True)

  def _check(self, run_dir: str) -> base.Runtime:
    """Checks what needs no images, and creates the runtime.

    Args:
      run_dir: Path of the run's directory.

    Returns:
      The runtime, which knows the paths that clients read.

    Raises:
      errors.FieldError: If the best model may not be kept, the extrapolation is
        not valid, too little of the budget is left, or the runtime cannot be
        created.
    """
    experiment, spec = self._experiment, self._experiment.spec
    self._keeps_best = handing_over.keeps_best(experiment)
    spec.extrapolation.extrapolate(experiment.plan_ledger())
    if not os.path.exists(os.path.join(run_dir, chain_lib.NAME)):
      experiment.check_budget()
    runtime = spec.runtime.create()
    # Clients read these, wherever they run.
    paths = {}
    for _, field, value in config_lib.walk(spec.task):
      if field.path and value:
        paths[field.flag] = value
    runtime.require_paths(paths)
    return runtime

  def _read_key(self, *, is_new: bool) -> int | None:
    """Reads or draws the key of the cohorts; None if devices decide them.

    Args:
      is_new: Whether no round of the run has begun.

    Returns:
      The spec's `sampling_seed`, or else a secret key of 128 bits.

    Raises:
      errors.FieldError: If rounds have begun and their key is lost.
    """
    spec = self._experiment.spec
    if spec.sampling_seed is not None or spec.deployment.deployment is not None:
      return spec.sampling_seed
    path = self.directory.path / run_directory.CHECKPOINTS
    return sampling_key.read_or_create(path, is_new=is_new)

  def _create_loop(
    self,
    process: tff.learning.templates.LearningProcess,
    runtime: base.Runtime,
    chain: chain_lib.Chain,
    trace: participation_trace.TraceWriter,
    key: int | None,
  ) -> loop_lib.TrainingLoop:
    """Creates the loop of the rounds, and begins or goes on with the chain.

    Args:
      process: The learning process.
      runtime: Runtime of the rounds.
      chain: Chain of the run.
      trace: Record of who takes part.
      key: Key of the draw of users; None if devices decide.

    Raises:
      errors.FieldError: If the run began with other values than now.
    """
    experiment, path = self._experiment, self.directory.path
    spec, users = experiment.spec, experiment.task.train_users
    self._deployed: deployment_lib.DeployedRounds | None = None
    draw: Callable[[int], list[np.ndarray]]
    if key is not None:
      draw = functools.partial(experiment.participation.sample, key=key)
    else:
      self._deployed = deployment_lib.open_rounds(
        experiment.create_simulation(process), self.directory
      )
      draw = self._deployed.draw
    trial = {"is_trial": True} if self._is_trial else {}
    chain.begin(
      experiment.plan_ledger(experiment_lib.count_parameters(process)),
      **trial,
      files=account.digest_files(path),
      users=users.digest,
      code_version=run_directory.find_code_version(),
    )
    return loop_lib.TrainingLoop(
      directory=path,
      kept=kept_model.KeptModel(path, chain) if self._keeps_best else None,
      charge=self._charge,
      process=process,
      runtime=runtime,
      users=users,
      draw=draw,
      chain=chain,
      trace=trace,
      evaluate_fn=self._evaluator.validate,
      config=spec,
      gives_up=not self._is_trial,
    )

  def _evaluate_start(
    self,
    by_split: Mapping[str, embedding.LabelledImages],
    sample: embedding.LabelledImages,
  ) -> None:
    """Evaluates a backbone without training, and the one to start from.

    Args:
      by_split: Held-out images by split.
      sample: Held-out images for evaluations during training.

    Raises:
      errors.DivergedError: If embeddings of validation images are not finite.
    """
    experiment, start = self._experiment, self._start
    tf.keras.utils.set_random_seed(experiment.spec.seed)
    self._evaluator = models.Evaluator(
      experiment.create_backbone(),
      by_split,
      sample,
      with_metrics=experiment.spec.evaluation.metrics,
    )
    self._untrained = self._evaluator.evaluate_all()
    if start is not None and start.weights is not None:
      self._evaluator.backbone.set_weights(start.weights)
      found = self._evaluator.evaluate_all()
      start.record["evaluation"] = report_lib.json_safe(
        training_report.without_curves(found)
      )
      self.directory.write_json(models.RECORD, start.record)

  def _charge(
    self,
    ledger: ledger_lib.Ledger,
    *,
    is_finished: bool = False,
    tells: bool = False,
  ) -> None:
    """Charges a ledger to the budget that the run shares, if any.

    Args:
      ledger: All rounds, future ones included, each as often as it runs.
      is_finished: Whether no round will follow.
      tells: Whether to print what is spent.

    Raises:
      errors.FieldError: If that would overspend.
    """
    path, chain = self._experiment.spec.privacy_budget, self._loop.chain
    if path is None:
      return
    charged = budget.charge(
      path,
      ledger,
      run_id=chain.run_id,
      run_dir=os.path.abspath(self.directory.path),
      users=self._experiment.task.train_users.digest,
      lines=chain.lines_of_rounds,
      is_finished=is_finished,
    )
    if tells:
      progress.say(
        f"With this run epsilon {charged.spent:.4g} of {charged.epsilon:.4g} at"
        f" delta {charged.delta:g} is spent in {path}."
      )

  def train(self) -> None:
    """Runs the rounds that are left.

    An interrupted program saves its finished rounds; the next one goes on after
    them.

    Raises:
      client_error.ClientError: If a client fails, is not skipped, and none of
        its examples is found to be bad.
      errors.DataError: If a client's examples cannot be read, or the trace has
        other users for a round that runs again.
      errors.DivergedError: If the model diverged.
      errors.FieldError: If a checkpoint is missing or not of the chain, or a
        round that runs again comes to another model.
      errors.StorageError: If files cannot be written.
    """
    loop = self._loop
    with loop.runtime:
      self._offer_start()
      loop.start(models.start_from(self._evaluator.backbone))
      self._watch.seconds["earlier_programs"] = loop.state.wall_seconds
      self._watch.end("compilation")
      try:
        loop.run()
      except client_error.ClientError as error:
        lines = self._experiment.task.find_bad_examples(error.client_id)
        if not lines:
          raise
        raise errors.DataError(
          f"data must be readable, found {bad_examples.summarize(lines)}."
          " on_bad_example=skip leaves out what is bad; the same command goes"
          " on from the last whole round once the data are mended."
        ) from error
      self._model_weights = loop.model
    loop.trace.close()
    self._watch.end("rounds")

  def _offer_start(self) -> None:
    """Keeps the model of the start, in a run that has not begun.

    It counts as round 0 among the models that the best is chosen from.

    Raises:
      errors.DivergedError: If its embeddings are not finite.
    """
    kept = self._loop.kept
    if kept is None or run_directory.checkpointed_rounds(self.directory.path):
      return
    backbone = self._evaluator.backbone
    start = tff.learning.models.ModelWeights.from_model(backbone)
    kept.offer(0, self._evaluator.validate(start), start)

  def report(self) -> None:
    """Evaluates and exports the model, and writes and prints the results.

    The summary is written last, so a directory that has one is complete. The
    next program repeats a report that was interrupted.

    Raises:
      errors.DataError: If the trace shows another participation than is
        accounted for.
      errors.DivergedError: If the model diverged.
    """
    evaluator, untrained = self._evaluator, self._untrained
    kept = handing_over.hand_over(evaluator, self._model_weights, self._loop)
    embedded, trained = evaluator.embed_all(), {}
    for split, some in embedded.items():
      trained[split] = comparison.warn_if_no_better(
        some.evaluate(), untrained[split]
      )
    self._watch.end("evaluation")
    privacy, deployed = self._account()
    self._charge(self._loop.chain.ledger, is_finished=True, tells=True)
    card = models.create_card(
      evaluator.backbone,
      embedded,
      privacy,
      experiment=self._experiment,
      chain=self._loop.chain,
      kept=kept,
    )
    model_path = self.directory.path / run_directory.SAVED_MODEL
    export.export_backbone(evaluator.backbone, model_path, card)
    self._watch.end("export")
    summary = self._summarize(trained, privacy)
    summary["kept"] = report_lib.json_safe(kept)
    if deployed is not None:
      summary["deployment"] = deployed
    self._finish(summary, privacy)

  def _account(self) -> tuple[report_lib.PrivacyReport, dict[str, Any] | None]:
    """Cost of the rounds, and the record of a deployment, if there was one.

    Returns:
      Report on the rounds that ran, and JSON values of the deployment or None.

    Raises:
      errors.DataError: If the trace shows another participation than is
        accounted for.
    """
    path, ledger = self.directory.path, self._loop.chain.ledger
    try:
      # PLD takes seconds.
      with participation_trace.TraceReader(path / run_directory.TRACE) as trace:
        privacy = ledger.report(trace)
        deployed = None
        if self._deployed is not None:
          deployed = self._deployed.summarize(ledger, trace)
    except errors.DataError as error:
      raise errors.DataError(f"no epsilon is reported: {error}") from error
    self._watch.end("account")
    return privacy, deployed

  def _summarize(
    self,
    trained: Mapping[str, verification.VerificationResult],
    privacy: report_lib.PrivacyReport,
  ) -> dict[str, Any]:
    """Writes the curves, and returns the summary so far.

    Args:
      trained: Result of the model that is handed over, by split.
      privacy: Cost of the rounds.

    Returns:
      JSON values by name.
    """
    untrained, spec = self._untrained, self._experiment.spec
    chain = self._loop.chain
    self.directory.write_json(
      run_directory.EVALUATION,
      {
        finished_run.TRAINED: trained["test"].to_json(),
        training_plots.UNTRAINED: untrained["test"].to_json(),
      },
    )
    return training_report.summarize(
      self._experiment,
      state=self._loop.state,
      chain=chain,
      model_weights=self._model_weights,
      metrics=metrics.read(self.directory.path),
      trained=trained,
      untrained=untrained,
      pretrained=self._start.record if self._start else None,
      privacy=privacy,
      extrapolation=spec.extrapolation.extrapolate(chain.planned),
    )

  def _finish(
    self, summary: dict[str, Any], privacy: report_lib.PrivacyReport
  ) -> None:
    """Draws pictures, writes the summary last, and prints the result.

    Args:
      summary: JSON values by name; gets the digest of the chain's last line,
        and seconds.
      privacy: Cost of the rounds.
    """
    path, chain, watch = self.directory.path, self._loop.chain, self._watch
    cost = account.Recomputed(chain, chain.ledger, privacy, ())
    finished = finished_run.FinishedRun.at_hand(
      self._experiment.spec, os.fspath(path), summary, cost
    )
    watch.end("extrapolation")
    training_report.draw(finished)
    report_page.write_release(finished)
    chain.record_given_away(release.digest_files(path))
    # The chain ends here: the summary names its last line.
    summary["chain"] = chain.head
    watch.end("pictures")
    seconds = dict(watch.seconds)
    summary["seconds_by_part"] = seconds
    summary["seconds_of_rounds"] = dict(self._loop.watch.seconds)
    summary["wall_seconds"] = sum(seconds.values()) - seconds["process_before"]
    self.directory.write_json(run_directory.SUMMARY, summary)
    progress.say(training_report.tell(finished))
