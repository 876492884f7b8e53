"""What an aggregator releases, round by round, for updates that are known."""

from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tff_fedemb import runtime
from tff_fedemb.mechanisms import mechanism
from tff_fedemb.mechanisms import registry

# Two tensors, so that they can be mixed up.
SMALL = ((2,), (3,))
SIZE = 5
# Others of as many numbers, for the noise.
LARGE = ((50, 100), (5_000,))
LARGE_SIZE = 10_000

CLIP_NORM = 2.0
CLIENTS_PER_ROUND = 100.0
CONFIG = {"clip_norm": CLIP_NORM, "clients_per_round": CLIENTS_PER_ROUND}

_State = Any


@dataclasses.dataclass(frozen=True)
class Rounds:
  """Some rounds, one after another.

  Attributes:
    means: Float64 `[rounds, size]`, what is released, its tensors end to end.
    reports: The measurements of each round.
    states: The state after each round, to go on from.
  """

  means: np.ndarray
  reports: list[dict[str, Any]]
  states: list[_State]

  def column(self, name: str) -> np.ndarray:
    """A measurement over the rounds, float64."""
    return np.array([report[name] for report in self.reports], np.float64)


def _build_process(
  aggregation: tff.templates.AggregationProcess, shapes: Sequence[Sequence[int]]
) -> tff.templates.IterativeProcess:
  """Rounds whose metrics are what is released; a client id is an update."""
  sizes = [int(np.prod(shape)) for shape in shapes]

  @tff.tensorflow.computation(np.str_)
  def create_update(client_id):
    pairs = tf.strings.split(tf.strings.split(client_id, " "), ":").to_tensor()
    flat = tf.scatter_nd(
      tf.strings.to_number(pairs[:, :1], tf.int32),
      tf.strings.to_number(pairs[:, 1]),
      [sum(sizes)],
    )
    return [
      tf.reshape(part, shape)
      for part, shape in zip(tf.split(flat, sizes), shapes, strict=True)
    ]

  @tff.federated_computation(
    aggregation.initialize.type_signature.result,
    tff.FederatedType(np.str_, tff.CLIENTS),
  )
  def next_round(state, client_ids):
    output = aggregation.next(
      state, tff.federated_map(create_update, client_ids)
    )
    return output.state, tff.federated_zip((output.result, output.measurements))

  return tff.templates.IterativeProcess(aggregation.initialize, next_round)


def _client_id(update: np.ndarray) -> str:
  positions = np.flatnonzero(update)
  if not positions.size:
    return "0:0"
  return " ".join(f"{i}:{float(update[i])!r}" for i in positions)


def flatten(tensors: Any) -> np.ndarray:
  """The numbers of some tensors end to end."""
  return np.concatenate([np.ravel(t) for t in tree.flatten(tensors)])


def create_mechanism(name: str, **options: Any) -> mechanism.Mechanism:
  """An aggregator of the registry.

  Args:
    name: Its key.
    **options: Clients of a round, fields of the schedule and of its config.
  """
  clients_per_round = options.pop("clients_per_round")
  schedule = {
    field.name: options.pop(field.name)
    for field in dataclasses.fields(mechanism.Schedule)
    if field.name in options
  }
  config = registry.AGGREGATORS[name](**options)
  return config.create(clients_per_round, mechanism.Schedule(**schedule))


class Aggregation:
  """An aggregator of the registry in a runtime of its own.

  Attributes:
    mechanism: The aggregator.
    first_state: That of one run.
  """

  def __init__(
    self,
    name: str,
    shapes: Sequence[Sequence[int]] = SMALL,
    runtime_name: str = "in_process",
    **options: Any,
  ):
    """Creates the aggregator.

    Args:
      name: Its key in the registry.
      shapes: Shapes of the tensors of an update.
      runtime_name: What runs it.
      **options: As in `create_mechanism`.
    """
    self.mechanism = create_mechanism(name, **options)
    self._shapes = shapes
    self.model_size = sum(int(np.prod(shape)) for shape in shapes)
    aggregation = self.mechanism.factory.create(
      tff.to_type([(np.float32, list(shape)) for shape in shapes])
    )
    self._process = _build_process(aggregation, shapes)
    self._runtime = runtime.create_runtime(runtime_name, concurrent_clients=1)
    self.first_state = self.initialize()

  def initialize(self) -> _State:
    """The state of a new run."""
    return self._runtime.initialize(self._process)

  def forget_sessions(self) -> None:
    """Has the server's computations begin as in a new process."""
    for sessions in self._runtime._server.values():
      sessions.close()

  def run(
    self, updates: Sequence[Sequence[np.ndarray]], state: _State | None = None
  ) -> Rounds:
    """Runs a round for each element of `updates`, a list of `[size]`.

    Args:
      updates: Those of the clients, round by round.
      state: Where to go on from; the first state if None.
    """
    state = self.first_state if state is None else state
    means, reports, states = [], [], []
    for round_updates in updates:
      state, (mean, report) = self._runtime.next(
        state, [_client_id(update) for update in round_updates]
      )
      means.append(flatten(mean).astype(np.float64))
      reports.append(dict(report))
      states.append(state)
    return Rounds(np.array(means), reports, states)

  def run_on_zeros(
    self, num_rounds: int, state: _State | None = None
  ) -> Rounds:
    """Rounds of a single client, whose update is zero."""
    return self.run([[np.zeros(self.model_size)]] * num_rounds, state)

  def measure_noise(
    self, num_rounds: int, noise_multiplier: float
  ) -> np.ndarray:
    """Noise of the first rounds, in standard deviations of a row of Z.

    Args:
      num_rounds: How many rounds to run.
      noise_multiplier: That of the sum.

    Returns:
      `[num_rounds, tensors, numbers]`, of tensors that have as many.
    """
    rounds = self.run_on_zeros(num_rounds)
    scale = noise_multiplier * rounds.column("clip_norm") / CLIENTS_PER_ROUND
    return (rounds.means / scale[:, np.newaxis]).reshape(
      num_rounds, len(self._shapes), -1
    )

  def save(self, state: _State) -> Any:
    """What a checkpoint holds of a state."""
    return self._runtime.structured_state(state)

  def load(self, saved: Any) -> _State:
    """Inverse of `save`."""
    return self._runtime.load_state(saved)

  def seeds(self, state: _State) -> list[np.ndarray]:
    """The seeds in a state, `[2]` each."""
    leaves = [np.asarray(leaf) for leaf in tree.flatten(self.save(state))]
    return [leaf for leaf in leaves if leaf.dtype == np.int64]

  def model_copies(self, state: _State) -> int:
    """Copies of the model that a state holds, rounded down."""
    leaves = [np.asarray(leaf) for leaf in tree.flatten(self.save(state))]
    sizes = [leaf.size for leaf in leaves if leaf.dtype.kind == "f"]
    return sum(sizes) // self.model_size

  def close(self) -> None:
    """Ends the runtime's threads."""
    self._runtime.close()
