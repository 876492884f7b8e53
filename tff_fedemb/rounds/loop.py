"""The training loop: rounds, evaluation, ledger, checkpoints, resume.

A round depends only on its number, its users and the last checkpoint. So a
program that was killed goes on as if nothing had happened, and a round that
runs again must have the users that the trace records. The chain records what
was released.

Correlated noise is a function of a seed in the checkpoint, so a round that runs
again has the same noise. It must come to the same model: the difference of two
sums with the same noise would have none. Independent noise is drawn afresh: the
second model is another release, and both are accounted for.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import os
import time
from typing import Any

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
from tff_fedemb.rounds import round_reports

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_fedemb.mechanisms import secret_noise
  from tff_fedemb.records import checkpoints as checkpoints_lib
  from tff_fedemb.records import metrics as metrics_lib
  from tff_fedemb.records import noise_keys
  from tff_fedemb.runtime import base

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
      and are not those for test; else last].
    export_average: Model that is evaluated and handed over is an exponential
      average of the models of all rounds, in which the past has this share
      after each round, 0.9 for example; `keep` is last then [no average].
    export_start_share: Share of the start in the model that is evaluated and
      handed over, whose weights lie between those of the start and of rounds.

  Raises:
    errors.FieldError: If a field is out of its range, or the best model is to
      be kept along with an average.
  """

  rounds: int = config_lib.field(100, minimum=1)
  evaluate_every: int = config_lib.field(10, minimum=0)
  checkpoint_every: int = config_lib.field(10, minimum=1)
  keep: str | None = config_lib.field(
    None, choices=(kept_model.BEST, kept_model.LAST)
  )
  export_average: float | None = config_lib.field(None, above=0, below=1)
  export_start_share: float = config_lib.field(0.0, minimum=0, below=1)

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.export_average is not None and self.keep == kept_model.BEST:
      must = f"be {kept_model.LAST} with export_average"
      raise errors.FieldError("keep", must, self.keep)


@dataclasses.dataclass(frozen=True)
class TrainingState:
  """Everything that the next round depends on.

  Attributes:
    process_state: State of the process, as the runtime has it.
    rounds_done: Number of finished rounds.
    wall_seconds: Seconds of these rounds, over all programs that ran them.
    average: Average of their models, nested arrays; `None` unless asked for.
  """

  process_state: Any
  rounds_done: int = 0
  wall_seconds: float = 0.0
  average: Any = None


@dataclasses.dataclass(kw_only=True)
class TrainingLoop:
  """Runs the rounds of one learning process in one run directory.

  Attributes:
    directory: Directory of the run, for checkpoints and metrics.
    process: Process that takes identifiers of virtual clients, not their data.
    runtime: Runtime that executes the process.
    users: Users by slot.
    draw: Maps a round's number, from 0, to the slots of each of its virtual
      clients. Called in the order of the rounds; the same number must give the
      same slots.
    chain: Chain of the run, after its `begin`. Each round is recorded before
      its model is used for anything.
    trace: Record of who takes part. Each round is recorded before it runs, and
      must have the same users if it runs again.
    evaluate_fn: Maps the weights of the model to hand over to its validation
      recalls by name.
    kept: Keeps the best of the evaluated models; `None` if the last model is
      handed over.
    config: Rounds and intervals.
    gives_up: Whether to end the run if no client's update is accepted any more,
      which is known from updates without noise.
    charge: Called once a round is recorded and before its model is used, with
      the ledger of all rounds, future ones included; raises an error to refuse.
    say: Receives lines for the reader.
    state: State after the rounds so far; not there before `start`.
    watch: Seconds of the rounds of this program by part: draw, clients, server,
      record, evaluation and files.
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

  def __post_init__(self) -> None:
    checkpoints_dir = os.path.join(self.directory, run_directory.CHECKPOINTS)
    self._checkpoints = checkpoints_lib.Checkpoints(
      checkpoints_dir, warn=self.say
    )
    self._noise_keys = noise_keys.NoiseKeys(checkpoints_dir)
    self._metrics = metrics_lib.MetricsLog(self.directory)
    self._reports = round_reports.RoundReports(self.config.rounds, self.say)

  def start(self, set_initial_weights_fn: Callable[[Any], Any]) -> None:
    """Compiles the process; resumes from the newest checkpoint if there is one.

    Args:
      set_initial_weights_fn: Maps the initial model weights of the process to
        those that training starts with.

    Raises:
      errors.FieldError: If the trace has rounds but there is no checkpoint, if
        no checkpoint can be read, or if the newest is not of the chain.
      errors.DivergedError: If the last rounds accepted nobody.
    """
    runtime = self.runtime
    initial = runtime.structured_state(runtime.initialize(self.process))
    weights = set_initial_weights_fn(initial.global_model_weights)
    initial = initial._replace(global_model_weights=weights)
    average = None
    if self.config.export_average is not None:
      average = tree.map_structure(np.array, weights)
    self._start = None
    if self.config.export_start_share:
      # The caller may change its variables or arrays later.
      self._start = tree.map_structure(np.array, weights)
    self.state = TrainingState(runtime.load_state(initial), average=average)
    found = self._checkpoints.load_latest(self._program_state())
    if found is not None:
      self._resume(*found)
      return
    if self.trace.num_rounds:
      # The first checkpoint is saved before the first round.
      raise errors.FieldError(
        "run_dir",
        f"hold a checkpoint of the {self.trace.num_rounds} rounds in its trace",
        "none: doing them again, with other noise, would cost more than is"
        " accounted; take another one to start again",
      )
    self._save()

  def _resume(self, saved: Any, rounds_done: int) -> None:
    """Goes on from a checkpoint, which must be one of the chain.

    Args:
      saved: Program state of the checkpoint, as `_program_state` returns it.
      rounds_done: Number of rounds that led to it.

    Raises:
      errors.FieldError: If the chain does not have the state, or the kept model
        does not fit the chain.
      errors.DivergedError: If the last rounds accepted nobody.
    """
    self.state = TrainingState(
      self.runtime.load_state(saved["process_state"]),
      rounds_done,
      float(saved["wall_seconds"]),
      saved.get("average"),
    )
    line = _text(saved["line"])
    self.chain.check_state(rounds_done, self._recorded(), line)
    if self.kept is not None:
      self.kept.restore(rounds_done)
    if rounds_done:
      self.say(f"Resuming after round {rounds_done}.")
    if rounds_done < self.chain.rounds:
      self._tell_again(rounds_done + 1, self.chain.rounds)
    self._require_somebody()

  def _tell_again(self, first: int, last: int) -> None:
    """Tells which rounds run again, and what that costs."""
    again = "with other noise, which is accounted for as another release"
    if self.chain.noise_is_the_same_again:
      again = "with the same noise, at no further cost"
    rounds = f"round {first}"
    if first < last:
      rounds = f"rounds {first} to {last}"
    self.say(f"Running {rounds} again, {again}.")

  def run(self) -> None:
    """Runs the rounds that are left.

    If it is interrupted, by Ctrl-C or by `SystemExit` (which SIGTERM raises in
    the programs here), it saves the finished rounds and raises the error again.

    Each round is recorded in the trace before it runs, and in the chain and the
    budget before its model is used. Checkpoints are saved at their interval,
    and at the end also after an error.

    Raises:
      errors.DivergedError: If nobody's update is accepted any more.
      errors.FieldError: If a round that runs again with the same noise comes to
        another model, or if `charge` refuses.
      errors.StorageError: If metrics or a checkpoint cannot be written.
      participation_trace.TraceError: If a round that runs again has other
        users.
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
          self._reports.show(
            progress, report, done + 1, self.state.wall_seconds
          )
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
    """Ends a run that would spend privacy on rounds that accept nobody.

    Raises:
      errors.DivergedError: If five rounds in a row that drew users, up to the
        latest, accepted none of them.
    """
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
    """Model weights after the rounds so far, without average and start."""
    return self._structured().global_model_weights

  @property
  def model(self) -> Any:
    """Model to evaluate and hand over: an average or mixture, if asked for."""
    return self.handed_over(self.weights, self.state.average)

  def handed_over(self, weights: Any, average: Any = None) -> Any:
    """Returns the model to hand over for the weights of a round.

    Args:
      weights: The weights.
      average: Average up to that round, which takes their place.

    Returns:
      The weights or their average, mixed with the weights at the start by
      `export_start_share`; nested arrays.
    """
    model = weights if average is None else average
    share = self.config.export_start_share
    return averaged_model.mix(self._start, model, share=share)

  def _structured(self) -> Any:
    """Returns the state of the process as TFF has it."""
    return self.runtime.structured_state(self.state.process_state)

  def _recorded(self) -> Any:
    """Returns the part of a checkpoint of which the chain has a digest."""
    structured = self._structured()
    if self.state.average is None:
      return structured
    return structured, self.state.average

  def _start_of_round(self) -> Any:
    """Returns the state that the next round starts from, with its noise key.

    Independent noise needs no key. A fresh key goes into correlated noise
    before the first round that the chain does not have; see `noise_keys`.
    """
    state = self.state.process_state
    if not self.chain.noise_is_the_same_again:
      return state
    number = self.state.rounds_done + 1
    has_run = number <= self.chain.rounds
    key = self._noise_keys.for_round(number, has_run=has_run)
    if key is None:
      return state
    structure = self.runtime.structured_state(state)
    return self.runtime.load_state(secret_noise.go_on_otherwise(structure, key))

  def _run_round(self) -> dict[str, float]:
    """Runs a round and moves on to its state; returns its metrics.

    The order matters: the trace records who takes part, the round runs, the
    chain records its model, and the budget is charged. Only then may the model
    be evaluated or kept.

    Returns:
      Numbers by name, for `metrics.csv`.
    """
    start = time.perf_counter()
    state = self.state
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
    report = self._reports.describe(
      rounds_done, measured, clients, client_ids, self.runtime.skipped_clients
    )
    report["seconds"] = time.perf_counter() - start
    average = averaged_model.average(
      state.average,
      weights,
      decay=self.config.export_average,
      rounds_done=rounds_done,
    )
    self.watch.end("record")
    recalls = {}
    if self._is_evaluated(rounds_done):
      # The report at the end has the same epsilon.
      report[metrics_lib.EPSILON] = self.chain.ledger.tightest_epsilon(
        self.trace
      )
      recalls = self.evaluate_fn(self.handed_over(weights, average))
      report.update(recalls)
      self.watch.end("evaluation")
    seconds = state.wall_seconds + time.perf_counter() - start
    # Assigned in one step, so that a signal cannot leave half a state.
    self.state = TrainingState(process_state, rounds_done, seconds, average)
    # Offer the model only now: a checkpoint of fewer rounds must not have it.
    if recalls and self.kept is not None:
      self.kept.offer(rounds_done, recalls, weights)
    return report

  def _is_evaluated(self, rounds_done: int) -> bool:
    """Returns whether a round is followed by an evaluation."""
    every = self.config.evaluate_every
    is_last = rounds_done == self.config.rounds
    return is_last or (every > 0 and rounds_done % every == 0)

  def _program_state(self) -> dict[str, Any]:
    """Returns what a checkpoint holds.

    Returns:
      `process_state` as TFF structures it, `line` (digest of the chain's last
      line), `wall_seconds`, and `average` if there is one.
    """
    saved = {
      "process_state": self._structured(),
      "line": self.chain.head,
      "wall_seconds": self.state.wall_seconds,
    }
    if self.state.average is not None:
      saved["average"] = self.state.average
    return saved

  def _save(self) -> None:
    """Saves a checkpoint, after its digest is in the chain."""
    rounds_done = self.state.rounds_done
    self.chain.record_state(rounds_done, self._recorded())

    def save_kept() -> None:
      if self.kept is not None:
        self.kept.save(rounds_done)

    self._checkpoints.save(self._program_state(), rounds_done, first=save_kept)


def _text(value: Any) -> str:
  """Returns a text of a checkpoint, which TFF may load as an array of bytes."""
  if isinstance(value, np.ndarray):
    value = value.item()
  return value.decode() if isinstance(value, bytes) else str(value)
