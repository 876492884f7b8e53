"""A run to be killed: correlated noise, known updates, each round on file.

The arguments of the program are a directory, an aggregator and a runtime
[in_process]. It goes on from where it was killed.
"""

import collections
import functools
import itertools
import json
import os
import pathlib
import sys
import time

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.rounds import loops
from tff_fedemb import runtime as runtimes
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.algorithms import learning_process
from tff_fedemb.mechanisms import mechanism as mechanism_lib
from tff_fedemb.mechanisms import registry
from tff_fedemb.participation import min_separation as min_separation_lib
from tff_fedemb.participation import participation_trace
from tff_fedemb.records import chain as chain_lib
from tff_fedemb.runtime import worker_process

ROUNDS = 40
NUM_USERS = 40
SEED = 3
CLIENTS_PER_ROUND = 8
MIN_SEPARATION = 5
DIM = 50
CLIP_NORM = 1.0
NOISE_MULTIPLIER = 0.7
UPDATE_NORM = 0.5
_NOISE_SEED = 20


def create_mechanism(aggregator: str) -> mechanism_lib.Mechanism:
  """Creates the mechanism, with a seed that two runs can share."""
  config = registry.AGGREGATORS[aggregator](
    clip_norm=CLIP_NORM,
    noise_multiplier=NOISE_MULTIPLIER,
    noise_seed=_NOISE_SEED,
  )
  return config.create(
    CLIENTS_PER_ROUND, mechanism_lib.Schedule(ROUNDS, MIN_SEPARATION)
  )


def create_participation() -> min_separation_lib.MinSeparation:
  """Creates a participation of eight of forty users a round."""
  return min_separation_lib.MinSeparation(NUM_USERS, CLIENTS_PER_ROUND)


def _build_process(aggregator: str) -> tff.learning.templates.LearningProcess:
  @tff.tensorflow.computation(np.str_)
  def create_dataset(client_id):
    label = tf.strings.to_number(client_id, tf.int64)
    return tf.data.Dataset.from_tensors(
      collections.OrderedDict(
        x=tf.zeros([1, 1, 1, 1], tf.uint8), y=tf.reshape(label, [1])
      )
    )

  def train(weights, dataset, round_num):
    """Moves the coordinate of the user's number."""
    del weights, round_num
    label = dataset.reduce(np.int64(0), lambda total, b: total + b["y"][0])
    return learning_process.ClientUpdate(
      (UPDATE_NORM * tf.one_hot(label, DIM),),
      num_examples=tf.constant(1, tf.int64),
      num_classes=tf.constant(1),
    )

  def create_weights():
    return tff.learning.models.ModelWeights((tf.Variable(tf.zeros(DIM)),), ())

  return tff.simulation.compose_dataset_computation_with_learning_process(
    create_dataset,
    learning_process.build_learning_process(
      create_weights,
      train,
      example_type=learning_process.build_example_type((1, 1, 1)),
      aggregator=create_mechanism(aggregator).factory,
      server_optimizer=tff.learning.optimizers.build_sgdm(1.0),
    ),
  )


def main(
  directory: pathlib.Path, aggregator: str, runtime_name: str = "in_process"
) -> None:
  """Runs the rounds in a directory, or those that are left."""
  worker_process.end_worker_on_exit()
  directory.mkdir(exist_ok=True)
  weights_of_rounds = directory / "weights"
  weights_of_rounds.mkdir(exist_ok=True)

  def record(weights):
    # A file for each time that a round ran, also if the program is killed then.
    trained = np.asarray(weights.trainable[0])
    np.save(weights_of_rounds / f"{next(numbers)}_{time.time_ns()}", trained)
    return {}

  chain = chain_lib.Chain(directory)
  mechanism = create_mechanism(aggregator)
  # As if the seed, by which runs are compared here, were secret.
  noise = composition.Noise(
    mechanism.config.noise_multiplier, mechanism.strategy
  )
  claim = create_participation()
  chain.begin(ledger_lib.Ledger(claim, delta=1e-3).with_rounds(noise, ROUNDS))
  with runtimes.create_runtime(runtime_name) as runtime:
    loop = loops.create(
      directory,
      runtime,
      chain=chain,
      trace=participation_trace.TraceWriter(directory / "trace", NUM_USERS),
      draw=functools.partial(create_participation().sample, key=SEED),
      config={"rounds": ROUNDS, "evaluate_every": 1, "checkpoint_every": 2},
      process=_build_process(aggregator),
      evaluate_fn=record,
      say=print,
    )
    loop.start(lambda weights: weights)
    numbers = itertools.count(loop.state.rounds_done + 1)
    loop.run()
  with participation_trace.TraceReader(directory / "trace") as trace:
    report = chain.ledger.report(trace)
  (directory / "report.json").write_text(json.dumps(report.to_json()))


def main_with_log(directory: pathlib.Path, aggregator: str) -> None:
  """Runs with its output in a file, as a program that a test starts."""
  with open(f"{directory}.log", "a") as log:
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
  main(directory, aggregator)


if __name__ == "__main__":
  main(pathlib.Path(sys.argv[1]), *sys.argv[2:])
