"""The training loop: rounds, evaluation, ledger, checkpoints, resume.

A round depends on its number, who is drawn and the last checkpoint alone, so a
program that was killed goes on as if it had not been, and a round that is run
again must have the users that the trace says it had. Correlated noise is a
function of a seed in the checkpoint and goes on: the same noise on another sum
would give both away. Independent noise is drawn afresh: if the first model was
seen, the second is another release, so both are accounted for.
"""

from collections.abc import Callable
import dataclasses
import time
from typing import Any
import zlib

import dp_accounting
import numpy as np
import tensorflow_federated as tff
import tqdm

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.data import participation_trace
from tff_fedemb.data import population
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.program import checkpoints as checkpoints_lib
from tff_fedemb.program import metrics as metrics_lib
from tff_fedemb.program import same_again
from tff_fedemb.runtime import base

RECALL_PREFIX = "validation/recall_at_far_"
_EPSILON = "privacy/epsilon"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig(config_lib.Config):
  """How long to train, and how often to look up from it.

  Attributes:
    rounds: Rounds of training.
    evaluate_every: Rounds between evaluations; 0: last round only.
    checkpoint_every: Rounds between checkpoints.
  """

  rounds: int = config_lib.field(100, minimum=1)
  evaluate_every: int = config_lib.field(10, minimum=0)
  checkpoint_every: int = config_lib.field(10, minimum=1)


@dataclasses.dataclass
class TrainingState:
  """All that the next round depends on.

  Attributes:
    process_state: The runtime's own.
    ledger: What the rounds so far have cost.
    rounds_done: Their number.
    wall_seconds: Time they took, over all the programs that ran them.
  """

  process_state: Any
  ledger: ledger_lib.Ledger
  rounds_done: int = 0
  wall_seconds: float = 0.0


@dataclasses.dataclass(kw_only=True)
class TrainingLoop:
  """Runs the rounds of one learning process in one run directory.

  Attributes:
    process: Takes virtual clients' identifiers in place of client data.
    runtime: What executes it.
    users: Who the slots are.
    draw: From a round's number to the slots of its virtual clients, which are
      the same whenever it is asked; asked in the order of the rounds.
    round_event: What each round releases, for a sensitivity of one clip norm.
    ledger: An empty ledger of the participation by which they are drawn.
    trace: Where to record who takes part. A round is recorded before it runs,
      and must be the same if it is run again.
    evaluate_fn: From the model's weights to validation metrics by name.
    checkpoints: Where to save.
    metrics: Where to report.
    config: Rounds and intervals.
    publish_ledger: Receives the ledger after each round, before the round's
      model is used for anything. It includes rounds that are to run again.
    published: What it has received last, from whatever program; None if that
      is not known: all rounds in the trace are taken to have run.
    name_skipped: From virtual clients to a line for each of their examples that
      cannot be used; asked once, when the first ones were left out.
    say: Receives a line for the reader from time to time.
  """

  process: tff.learning.templates.LearningProcess
  runtime: base.Runtime
  users: population.Population
  draw: Callable[[int], list[np.ndarray]]
  round_event: dp_accounting.DpEvent
  ledger: ledger_lib.Ledger
  trace: participation_trace.TraceWriter
  evaluate_fn: Callable[[Any], dict[str, float]]
  checkpoints: checkpoints_lib.Checkpoints
  metrics: metrics_lib.MetricsLog
  config: TrainingConfig
  publish_ledger: Callable[[ledger_lib.Ledger], None] = lambda ledger: None
  published: ledger_lib.Ledger | None = None
  name_skipped: Callable[[list[str]], list[str]] = lambda clients: []
  say: Callable[[str], None] = print

  def __post_init__(self):
    self._has_named_skipped = False
    # How often rounds ran of which no checkpoint is left.
    self._lost: dict[int, int] = {}
    self._measured = same_again.MeasuredRounds(self.checkpoints.directory)
    self._shown: dict[str, str] = {}

  def start(
    self, set_initial_weights_fn: Callable[[Any], Any]
  ) -> TrainingState:
    """Compiles the process; resumes from the newest checkpoint if there is one.

    Args:
      set_initial_weights_fn: From the model weights that the process starts
        with to those that training starts with.

    Returns:
      The state to `run` from.

    Raises:
      errors.FieldError: If the checkpoint's ledger is of other users: what the
        run has cost them cannot be added to what it would cost these; if the
        trace does not hold its rounds; or if no checkpoint is whole.
    """
    initial = self.runtime.structured_state(
      self.runtime.initialize(self.process)
    )
    initial = initial._replace(
      global_model_weights=set_initial_weights_fn(initial.global_model_weights)
    )
    state = TrainingState(self.runtime.load_state(initial), self.ledger)
    found = self.checkpoints.load_latest(self._program_state(state))
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
      # Whoever goes on can tell a round that was begun from one that ended.
      self.publish_ledger(state.ledger)
      self.checkpoints.save(self._program_state(state), 0)
      return state
    saved, rounds_done = found
    ledger = ledger_lib.Ledger.from_json(_text(saved["ledger"]))
    if (ledger.participation, ledger.delta) != (
      state.ledger.participation,
      state.ledger.delta,
    ):
      raise errors.FieldError(
        "run_dir",
        "be of a run on the same users",
        f"one with {ledger.participation} and delta {ledger.delta}; the data"
        f" now make it {state.ledger.participation} and {state.ledger.delta}",
      )
    if self.trace.num_rounds < rounds_done:
      raise errors.FieldError(
        "run_dir",
        f"hold the trace of the {rounds_done} rounds in its checkpoint",
        f"one of {self.trace.num_rounds}: who took part in the others cannot"
        " be shown",
      )
    if rounds_done:
      self.say(f"Resuming after round {rounds_done}.")
    self._find_lost(ledger)
    return TrainingState(
      self.runtime.load_state(saved["process_state"]),
      # Which earlier versions did not record.
      dataclasses.replace(ledger, round_sum=self.ledger.round_sum),
      rounds_done,
      float(saved["wall_seconds"]),
    )

  @property
  def _noise_is_fresh(self) -> bool:
    return composition.noise_of(self.round_event).strategy is None

  def _find_lost(self, ledger: ledger_lib.Ledger) -> None:
    """Finds the rounds that ran after those of a checkpoint's ledger."""
    runs: list[int] = []
    if self.published and self.published.participation == ledger.participation:
      runs = self.published.runs_of_rounds
    # The last round of the trace may not have come to its end: it is published
    # if it has. More of them say that what was published is lost, too.
    missing = self.trace.num_rounds - len(runs)
    if self.published is None or missing > 1:
      runs += [1] * missing
    self._lost = dict(list(enumerate(runs))[ledger.rounds :])
    if not self._lost:
      return
    first, last = min(self._lost) + 1, max(self._lost) + 1
    rounds = f"round {first}" if first == last else f"rounds {first} to {last}"
    again = "with the same noise, at no further cost"
    if self._noise_is_fresh:
      again = "with other noise, which is accounted for as another release"
    else:
      # What a round measured is kept before it is published.
      ended = self.trace.num_rounds - (missing > 0)
      self._measured.require(n + 1 for n in self._lost if n < ended)
    self.say(f"Running {rounds} again, {again}.")

  def _charge(self, ledger: ledger_lib.Ledger) -> ledger_lib.Ledger:
    """The ledger with a round more, each of its runs with noise of its own."""
    lost = self._lost.get(ledger.rounds, 0) if self._noise_is_fresh else 0
    return ledger.with_rounds(self.round_event, times=1 + lost)

  def _with_lost(self, ledger: ledger_lib.Ledger) -> ledger_lib.Ledger:
    """The ledger with the rounds that ran, and are to run again, as well."""
    for number, times in sorted(self._lost.items()):
      if number >= ledger.rounds:
        ledger = ledger.with_rounds(self.round_event, times=times)
    return ledger

  def run(self, state: TrainingState) -> TrainingState:
    """Runs the rounds that are left.

    An interruption, by Ctrl-C or by `SystemExit`, which is what SIGTERM raises
    in the programs here, saves the rounds that were done before it goes on its
    way.

    Args:
      state: What `start` returned.

    Returns:
      The state after the last round.
    """
    config = self.config
    with tqdm.tqdm(
      total=config.rounds,
      initial=state.rounds_done,
      unit="round",
      # Without a terminal, the lines that `say` gets tell how it goes.
      disable=None,
      dynamic_ncols=True,
    ) as progress:
      try:
        while state.rounds_done < config.rounds:
          state, report = self._run_round(state)
          progress.update()
          self._show(progress, state, report)
          if state.rounds_done % config.checkpoint_every == 0:
            self._save(state)
      except (KeyboardInterrupt, SystemExit):
        self.say(
          f"Interrupted after round {state.rounds_done}; the same command"
          " goes on from there."
        )
        raise
      finally:
        # Also after an error: what was done is done.
        self._save(state)
    return state

  def weights(self, state: TrainingState) -> Any:
    """The model weights of a state."""
    return self.runtime.structured_state(
      state.process_state
    ).global_model_weights

  def _run_round(
    self, state: TrainingState
  ) -> tuple[TrainingState, dict[str, float]]:
    start = time.perf_counter()
    clients = self.draw(state.rounds_done)
    self.trace.record(state.rounds_done, clients)
    client_ids = self.users.client_ids(clients)
    process_state, measured = self.runtime.next(state.process_state, client_ids)
    skipped = self.runtime.skipped_clients
    report = metrics_lib.flatten(measured)
    report[same_again.NUM_SKIPPED_CLIENTS] = len(skipped)
    if not self._noise_is_fresh:
      self._measured.check(report, state.rounds_done + 1)
    ledger = self._charge(state.ledger)
    so_far = self._with_lost(ledger)
    self.publish_ledger(so_far)
    report["participants/num_users"] = sum(map(len, clients))
    # Two runs had the same virtual clients if they had the same numbers here.
    report["participants/checksum"] = zlib.crc32("\0".join(client_ids).encode())
    report["seconds"] = time.perf_counter() - start
    rounds_done = state.rounds_done + 1
    if skipped:
      self.say(
        f"round {rounds_done}: skipped {len(skipped)} of"
        f" {len(client_ids)} virtual clients; the first: {skipped[0]}"
      )
    self._tell_skipped_examples(
      int(report.get(same_again.NUM_SKIPPED_EXAMPLES, 0)),
      rounds_done,
      client_ids,
    )
    every = self.config.evaluate_every
    new_state = TrainingState(process_state, ledger, rounds_done)
    if rounds_done == self.config.rounds or (
      every and rounds_done % every == 0
    ):
      # As the report at the end, which is to say nothing else.
      report[_EPSILON] = so_far.tightest_epsilon()
      report.update(self.evaluate_fn(self.weights(new_state)))
    self.metrics.release(report, rounds_done)
    new_state.wall_seconds = state.wall_seconds + time.perf_counter() - start
    return new_state, report

  def _tell_skipped_examples(
    self, number: int, rounds_done: int, client_ids: list[str]
  ) -> None:
    if not number:
      return
    named = ""
    if not self._has_named_skipped:
      # Looking for them reads the clients once more.
      self._has_named_skipped = True
      named = "".join(f"\n  {line}" for line in self.name_skipped(client_ids))
    self.say(
      f"round {rounds_done}: left out {number} examples that cannot be"
      f" decoded{named}"
    )

  def _show(
    self, progress: tqdm.tqdm, state: TrainingState, report: dict[str, float]
  ) -> None:
    shown = self._shown
    shown["loss"] = f"{report.get('client_work/loss', np.nan):.3f}"
    recalls = [name for name in report if name.startswith(RECALL_PREFIX)]
    for name in recalls:
      rate = name.removeprefix(RECALL_PREFIX)
      shown[f"recall@{rate}"] = f"{report[name]:.3f}"
    if _EPSILON in report:
      shown["epsilon"] = f"{report[_EPSILON]:.4g}"
    if recalls:
      rounds, done = self.config.rounds, state.rounds_done
      left = state.wall_seconds / done * (rounds - done)
      facts = "  ".join(f"{name} {value}" for name, value in shown.items())
      self.say(
        f"round {done}/{rounds}  {facts}  "
        f"{tqdm.tqdm.format_interval(left)} left"
      )
    # Recall and epsilon stay on the bar until there are newer ones.
    progress.set_postfix(shown)

  def _program_state(self, state: TrainingState) -> dict[str, Any]:
    return {
      "process_state": self.runtime.structured_state(state.process_state),
      "ledger": state.ledger.to_json(),
      "wall_seconds": state.wall_seconds,
    }

  def _save(self, state: TrainingState) -> None:
    self.checkpoints.save(self._program_state(state), state.rounds_done)


def _text(value: Any) -> str:
  value = value.item() if isinstance(value, np.ndarray) else value
  return value.decode() if isinstance(value, bytes) else str(value)
