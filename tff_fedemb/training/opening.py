"""Opens a run: checks, files, process and untrained model, before any round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
import dataclasses
import functools
import os

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tqdm

from tff_fedemb import config as config_lib
from tff_fedemb import progress
from tff_fedemb.data import bad_examples
from tff_fedemb.data import participation_trace
from tff_fedemb.evaluation import embedding
from tff_fedemb.evaluation import verification
from tff_fedemb.privacy import budget
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.program import chain as chain_lib
from tff_fedemb.program import chain_checks
from tff_fedemb.program import checkpoints
from tff_fedemb.program import metrics
from tff_fedemb.program import run_directory
from tff_fedemb.program import sampling_key
from tff_fedemb.program import training
from tff_fedemb.report import page as report_page
from tff_fedemb.run import deployment as deployment_lib
from tff_fedemb.run import experiment as experiment_lib
from tff_fedemb.run import spec as spec_lib
from tff_fedemb.training import backbone_files
from tff_fedemb.training import held_out

# Prints a line without breaking the progress bar.
_say = tqdm.tqdm.write


@dataclasses.dataclass(frozen=True)
class Run:
  """A run whose directory is open, before its first round."""

  experiment: experiment_lib.Experiment
  directory: run_directory.RunDirectory
  loop: training.TrainingLoop
  # Its backbone has the weights that training starts from.
  evaluator: held_out.Evaluator
  untrained: dict[str, verification.VerificationResult]
  start_point: backbone_files.Start | None
  # Draws who takes part, if the participation does not.
  deployed: deployment_lib.DeployedRounds | None


def open_run(
  experiment: experiment_lib.Experiment,
  run_dir: str,
  export_backbone: str | None,
  watch: progress.Stopwatch,
) -> Run | None:
  """Checks what can be checked and builds the run; `None` if it is complete."""
  spec, task = experiment.spec, experiment.task
  # Mistakes are told now, not after the first round or the last one.
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
  has_deployment = spec.deployment.deployment is not None
  if key is None and not has_deployment:
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
  deployed = None
  draw: Callable[[int], list[np.ndarray]]
  draw = functools.partial(experiment.participation.sample, key=key)
  if has_deployment:
    deployed = deployment_lib.open_rounds(
      experiment.create_simulation(process), directory
    )
    draw = deployed.draw
  _begin(chain, experiment, directory, _count_parameters(process))
  loop = training.TrainingLoop(
    process=process,
    runtime=runtime,
    users=task.train_users,
    draw=draw,
    chain=chain,
    trace=trace,
    evaluate_fn=evaluator.validate,
    checkpoints=checkpoints.Checkpoints(
      directory.path / run_directory.CHECKPOINTS, warn=_say
    ),
    metrics=metrics.MetricsLog(directory.path),
    config=spec,
    name_skipped=lambda clients: [
      line for client in clients for line in task.find_bad_examples(client)
    ],
    say=_say,
  )
  run = Run(
    experiment, directory, loop, evaluator, untrained, start_point, deployed
  )
  rounds_done = max(run_directory.checkpointed_rounds(run_dir), default=0)
  charge(run, chain.ledger_to_the_end(rounds_done))
  return run


def _find_paths(source: config_lib.Config) -> dict[str, str]:
  """Paths that clients read, wherever they run, by the field that has them."""
  return {
    field.flag: os.path.abspath(value)
    for _, field, value in config_lib.walk(source)
    if field.path and value
  }


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


def charge(
  run: Run, ledger: ledger_lib.Ledger, *, is_finished: bool = False
) -> None:
  """Charges the run to the budget that it shares with others, if any.

  Args:
    run: The run.
    ledger: Ledger that is charged.
    is_finished: Whether it will cost no more.

  Raises:
    errors.FieldError: If that would overspend.
  """
  path = run.experiment.spec.privacy_budget
  if path is None:
    return
  charged = budget.charge(
    path,
    ledger,
    run_id=run.loop.chain.run_id,
    run_dir=os.path.abspath(run.directory.path),
    users=run.experiment.task.train_users.digest,
    is_finished=is_finished,
  )
  _say(
    f"With this run epsilon {charged.spent:.4g} of {charged.epsilon:.4g} at"
    f" delta {charged.delta:g} is spent in {path}."
  )


def _describe(
  experiment: experiment_lib.Experiment,
  held_out_images: Mapping[str, embedding.LabelledImages],
) -> Iterator[str]:
  """Says what is trained and evaluated on, and what is odd about that."""
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
