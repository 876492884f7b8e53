"""The training loop: rounds, evaluation, ledger, checkpoints, resume.

A round depends on its number, who is drawn and the last checkpoint alone, so a
program that was killed goes on as if it had not been, and a round that is run
again must have the users that the trace says it had. Correlated noise is a
function of a seed in the checkpoint and goes on: the same noise on another sum
would give both away, so the round must come to the model that it released.
Independent noise is drawn afresh: if the first model was seen, the second is
another release, so both are accounted for. The chain knows what was released.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import os
import time
from typing import Any
import zlib

from etils import epy
import numpy as np
import tqdm
import tree

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import progress as progress_lib
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.data import population
from tff_fedemb.participation import participation_trace
from tff_fedemb.records import chain as chain_lib
from tff_fedemb.records import kept_model
from tff_fedemb.records import run_directory
from tff_fedemb.rounds import averaged_model

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_fedemb.mechanisms import secret_noise
  from tff_fedemb.records import checkpoints as checkpoints_lib
  from tff_fedemb.records import metrics as metrics_lib
  from tff_fedemb.records import noise_keys
  from tff_fedemb.runtime import base

RECALL_PREFIX = "validation/recall_at_far_"
_EPSILON = "privacy/epsilon"
_NUM_REJECTED = "client_work/num_rejected_clients"
_MAX_ROUNDS_OF_NOBODY = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig(config_lib.Config):
  """Number of rounds, and intervals between evaluations and checkpoints.

  Attributes:
    rounds: Rounds of training.
    evaluate_every: Rounds between evaluations; 0: last round only.
    checkpoint_every: Rounds between checkpoints.
    keep: Model that is handed over: the last one, or the best of those
      evaluated by mean recall on the validation images, the start among them
      [best where these are of users who do not train or nobody is protected,
      else last].
    export_average: Model that is evaluated and handed over is an exponential
      average of the models of all rounds, in which the past has this share
      after each round, 0.9 for example; `keep` is last then [no average].
  """

  rounds: int = config_lib.field(100, minimum=1)
  evaluate_every: int = config_lib.field(10, minimum=0)
  checkpoint_every: int = config_lib.field(10, minimum=1)
  keep: str | None = config_lib.field(
    None, choices=(kept_model.BEST, kept_model.LAST)
  )
  export_average: float | None = config_lib.field(None, above=0, below=1)

  def __post_init__(self):
    super().__post_init__()
    if self.export_average is not None and self.keep == kept_model.BEST:
      must = f"be {kept_model.LAST} with export_average"
      raise errors.FieldError("keep", must, self.keep)


@dataclasses.dataclass(frozen=True)
class TrainingState:
  """All that the next round depends on.

  Attributes:
    process_state: State of the process, as the runtime has it.
    rounds_done: Number of rounds that ran.
    wall_seconds: Seconds of these rounds, in all programs that ran them.
    average: Average of the models of the rounds, if it is asked for.
  """

  process_state: Any
  rounds_done: int = 0
  wall_seconds: float = 0.0
  average: Any = None


@dataclasses.dataclass(kw_only=True)
class TrainingLoop:
  """Runs the rounds of one learning process in one run directory.

  Attributes:
    directory: Directory of the run; gets checkpoints and metrics.
    process: Takes virtual clients' identifiers in place of client data.
    runtime: Runtime that executes the process.
    users: Users by slot.
    draw: Maps a round's number to the slots of its virtual clients, which are
      the same whenever it is asked; asked in the order of the rounds.
    chain: Chain of the run, which has been begun; each round is recorded before
      its model is used for anything.
    trace: Record of who takes part. A round is recorded before it runs, and
      must be the same if it is run again.
    evaluate_fn: Maps the weights of the model that would be handed over to
      validation metrics by name: their recalls.
    kept: Keeps the best of the evaluated models; `None` where it is the last
      that counts.
    config: Rounds and intervals.
    gives_up: Whether to end when nobody's update is accepted any more. That is
      known from updates without noise.
    charge: Receives the ledger of all rounds, those to come as well, once a
      round is recorded and before its model is used; may refuse that.
    say: Receives a line for the reader from time to time.
    state: State after the rounds so far, once the loop has started.
    watch: Seconds of the rounds of this program by part: drawing users, the
      clients, the server, the record, evaluations, checkpoints and metrics.
  """

  directory: str | os.PathLike[str]
  process: tff.learning.templates.LearningProcess
  runtime: base.Runtime
  users: population.Population
  draw: Callable[[int], list[np.ndarray]]
  chain: chain_lib.Chain
  trace: participation_trace.TraceWriter
  evaluate_fn: Callable[[Any], dict[str, float]]
  config: TrainingConfig
  kept: kept_model.KeptModel | None = None
  gives_up: bool = True
  charge: Callable[[ledger_lib.Ledger], None] = lambda ledger: None
  say: Callable[[str], None] = progress_lib.say
  state: TrainingState = dataclasses.field(init=False)
  watch: progress_lib.Stopwatch = dataclasses.field(init=False)

  def __post_init__(self):
    checkpoints_dir = os.path.join(self.directory, run_directory.CHECKPOINTS)
    self._checkpoints = checkpoints_lib.Checkpoints(
      checkpoints_dir, warn=self.say
    )
    self._noise_keys = noise_keys.NoiseKeys(checkpoints_dir)
    self._metrics = metrics_lib.MetricsLog(self.directory)
    self._shown: dict[str, str] = {}

  def start(self, set_initial_weights_fn: Callable[[Any], Any]) -> None:
    """Compiles the process; resumes from the newest checkpoint if there is one.

    Args:
      set_initial_weights_fn: Maps the model weights that the process starts
        with to those that training starts with.

    Raises:
      errors.FieldError: If there is no checkpoint of the rounds in the trace,
        none is whole, or the newest is not one of the chain.
      errors.DivergedError: If the last rounds accepted nobody.
    """
    runtime, chain = self.runtime, self.chain
    initial = runtime.structured_state(runtime.initialize(self.process))
    initial = initial._replace(
      global_model_weights=set_initial_weights_fn(initial.global_model_weights)
    )
    self.state = TrainingState(
      runtime.load_state(initial),
      average=self._first_average(initial.global_model_weights),
    )
    found = self._checkpoints.load_latest(self._program_state())
    if found is None:
      if self.trace.num_rounds:
        # The first checkpoint is older than the first round.
        raise errors.FieldError(
          "run_dir",
          f"hold a checkpoint of the {self.trace.num_rounds} rounds in its"
          " trace",
          "none: doing them again, with other noise, would cost more than is"
          " accounted; take another one to start again",
        )
      self._save()
      return
    saved, rounds_done = found
    self.state = TrainingState(
      runtime.load_state(saved["process_state"]),
      rounds_done,
      float(saved["wall_seconds"]),
      saved.get("average"),
    )
    chain.check_state(rounds_done, self._recorded(), _text(saved["line"]))
    if self.kept is not None:
      self.kept.restore(rounds_done)
    if rounds_done:
      self.say(f"Resuming after round {rounds_done}.")
    if rounds_done < chain.rounds:
      again = "with other noise, which is accounted for as another release"
      if chain.noise_is_the_same_again:
        again = "with the same noise, at no further cost"
      first, last = rounds_done + 1, chain.rounds
      rounds = f"rounds {first} to {last}" if first < last else f"round {first}"
      self.say(f"Running {rounds} again, {again}.")
    self._require_somebody()

  def run(self) -> None:
    """Runs the rounds that are left.

    An interruption, by Ctrl-C or by `SystemExit`, which is what SIGTERM raises
    in the programs here, saves the rounds that were done before it goes on its
    way.

    Raises:
      errors.DivergedError: If nobody's update is accepted any more.
      errors.StorageError: If metrics or a checkpoint cannot be written.
    """
    config = self.config
    self.watch = progress_lib.Stopwatch()
    with tqdm.tqdm(
      total=config.rounds,
      initial=self.state.rounds_done,
      unit="round",
      # The bar is for terminals; elsewhere the lines of `say` show progress.
      disable=None,
      dynamic_ncols=True,
    ) as progress:
      try:
        while (done := self.state.rounds_done) < config.rounds:
          report = self._run_round()
          # Save the round even if its metrics cannot be written: running it
          # again would cost privacy again.
          self._metrics.release(report, done + 1)
          progress.update()
          self._show(progress, report)
          if not report[metrics_lib.NUM_ACCEPTED]:
            self._require_somebody()
          if (done + 1) % config.checkpoint_every == 0:
            self._save()
          self.watch.end("files")
      except (KeyboardInterrupt, SystemExit):
        self.say(
          f"Interrupted after round {self.state.rounds_done}; the same command"
          " goes on from there."
        )
        raise
      finally:
        # Save after an error too: the finished rounds have already cost
        # privacy.
        self._save()

  def _require_somebody(self) -> None:
    """Ends a run that spends its privacy on nobody's updates."""
    if not self.gives_up:
      return
    done = self.state.rounds_done
    rounds = self._metrics.rounds_of_nobody(done)
    if len(rounds) >= _MAX_ROUNDS_OF_NOBODY:
      raise errors.DivergedError(
        f"training diverged: no client's update was accepted in rounds"
        f" {rounds[0]} to {rounds[-1]}; a lower client_learning_rate or"
        f" server_learning_rate, in another run_dir, may help. The run and"
        f" the account of what its {done} rounds have cost stay."
      )

  @property
  def weights(self) -> Any:
    """The model weights after the rounds so far."""
    return self._structured().global_model_weights

  @property
  def model(self) -> Any:
    """The model to evaluate and hand over: the weights or an average."""
    average = self.state.average
    return self.weights if average is None else average

  def _structured(self) -> Any:
    return self.runtime.structured_state(self.state.process_state)

  def _recorded(self) -> Any:
    """The part of a checkpoint that the chain has a digest of."""
    structured, average = self._structured(), self.state.average
    return structured if average is None else (structured, average)

  def _first_average(self, weights: Any) -> Any:
    if self.config.export_average is None:
      return None
    return tree.map_structure(np.array, weights)

  def _next_average(self, weights: Any, rounds_done: int) -> Any:
    decay = self.config.export_average
    if decay is None:
      return None
    return averaged_model.average(
      self.state.average, weights, decay=decay, rounds_done=rounds_done
    )

  def _start_of_round(self) -> Any:
    """The state that the next round starts from, with its noise to come."""
    state, number = self.state.process_state, self.state.rounds_done + 1
    key = None
    if self.chain.noise_is_the_same_again:
      has_run = number <= self.chain.rounds
      key = self._noise_keys.for_round(number, has_run=has_run)
    if key is None:
      return state
    structure = self.runtime.structured_state(state)
    return self.runtime.load_state(secret_noise.go_on_otherwise(structure, key))

  def _run_round(self) -> dict[str, float]:
    """Runs a round, after which the state is another; returns its metrics."""
    start, state = time.perf_counter(), self.state
    clients = self.draw(state.rounds_done)
    participants = self.trace.record(state.rounds_done, clients)
    client_ids = self.users.client_ids(clients)
    self.watch.end("draw")
    process_state, measured = self.runtime.next(
      self._start_of_round(), client_ids
    )
    self.watch.end("clients")
    self.watch.move(
      self.runtime.server_seconds, source="clients", target="server"
    )
    rounds_done = state.rounds_done + 1
    weights = self.runtime.structured_state(process_state).global_model_weights
    self.chain.record_round(rounds_done, participants, weights)
    self.charge(self.chain.ledger_to_the_end(rounds_done))
    skipped = self.runtime.skipped_clients
    report = metrics_lib.flatten(measured)
    report[metrics_lib.NUM_SKIPPED_CLIENTS] = len(skipped)
    rejected = len(skipped) + int(report.get(_NUM_REJECTED, 0))
    report[metrics_lib.NUM_ACCEPTED] = len(client_ids) - rejected
    report[metrics_lib.NUM_USERS] = sum(map(len, clients))
    # Two runs had the same virtual clients if they had the same numbers here.
    report["participants/checksum"] = zlib.crc32("\0".join(client_ids).encode())
    report["seconds"] = time.perf_counter() - start
    if skipped:
      self.say(
        f"round {rounds_done}: skipped {len(skipped)} of"
        f" {len(client_ids)} virtual clients; the first: {skipped[0]}"
      )
    if bad := int(report.get(metrics_lib.NUM_SKIPPED_EXAMPLES, 0)):
      self.say(
        f"round {rounds_done}: left out {bad} examples that cannot be decoded"
      )
    average = self._next_average(weights, rounds_done)
    self.watch.end("record")
    every, recalls = self.config.evaluate_every, {}
    if rounds_done == self.config.rounds or (
      every and rounds_done % every == 0
    ):
      # The same figure as in the report at the end.
      report[_EPSILON] = self.chain.ledger.tightest_epsilon(self.trace)
      recalls = self.evaluate_fn(weights if average is None else average)
      report.update(recalls)
      self.watch.end("evaluation")
    seconds = state.wall_seconds + time.perf_counter() - start
    # Assigned in one step, so that a signal cannot leave half a state.
    self.state = TrainingState(process_state, rounds_done, seconds, average)
    # A checkpoint of fewer rounds must not have a model of this one.
    if recalls and self.kept is not None:
      self.kept.offer(rounds_done, recalls, weights)
    return report

  def _show(self, progress: tqdm.tqdm, report: dict[str, float]) -> None:
    shown = self._shown
    accepted = int(report[metrics_lib.NUM_ACCEPTED])
    rejected = int(report.get(_NUM_REJECTED, 0))
    # If no client was accepted, there is no loss to show: NaN, not 0.
    loss = report.get("client_work/loss", np.nan) if accepted else np.nan
    shown["loss"] = f"{loss:.3f}"
    shown["rejected"] = f"{rejected} of {accepted + rejected}"
    for name, value in report.items():
      if name.startswith(RECALL_PREFIX):
        rate = name.removeprefix(RECALL_PREFIX)
        shown[f"recall@{rate}"] = f"{value:.3f}"
    if _EPSILON in report:
      shown["epsilon"] = f"{report[_EPSILON]:.4g}"
      rounds, done = self.config.rounds, self.state.rounds_done
      left = self.state.wall_seconds / done * (rounds - done)
      facts = "  ".join(f"{name} {value}" for name, value in shown.items())
      self.say(
        f"round {done}/{rounds}  {facts}  "
        f"{tqdm.tqdm.format_interval(left)} left"
      )
    # Recall and epsilon stay on the bar until there are newer ones.
    progress.set_postfix(shown)

  def _program_state(self) -> dict[str, Any]:
    saved = {
      "process_state": self._structured(),
      "line": self.chain.head,
      "wall_seconds": self.state.wall_seconds,
    }
    if self.state.average is not None:
      saved["average"] = self.state.average
    return saved

  def _save(self) -> None:
    self.chain.record_state(self.state.rounds_done, self._recorded())
    if self.kept is not None:
      self.kept.save(self.state.rounds_done)
    self._checkpoints.save(self._program_state(), self.state.rounds_done)


def _text(value: Any) -> str:
  value = value.item() if isinstance(value, np.ndarray) else value
  return value.decode() if isinstance(value, bytes) else str(value)
