"""Tests of mechanisms as aggregators of TFF's own processes."""

import collections
import functools
import json
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.binaries import programs
from tests.runtime import networks
import tff_fedemb as fe
from tff_fedemb import runtime
from tff_fedemb.mechanisms import blt
from tff_fedemb.mechanisms import mechanism
from tff_fedemb.mechanisms import registry
from tff_fedemb.mechanisms import tff_aggregator

# The network has it for its weights that are not trained.
pytestmark = pytest.mark.filterwarnings("ignore:Batch Normalization")

_PAGE = pathlib.Path(__file__).parents[2] / "docs" / "from_tff.md"
_CLIENTS, _ROUNDS = 3, 2
_sgd = functools.partial(tff.learning.optimizers.build_sgdm, 0.1)
_algorithms = tff.learning.algorithms


# Functions that build a process from an aggregator.
_ALGORITHMS = {
  "weighted_fed_avg": lambda mean: _algorithms.build_weighted_fed_avg(
    networks.create_model, _sgd(), model_aggregator=mean
  ),
  "unweighted_fed_avg": lambda mean: _algorithms.build_unweighted_fed_avg(
    networks.create_model, _sgd(), model_aggregator=mean
  ),
  "weighted_fed_prox": lambda mean: _algorithms.build_weighted_fed_prox(
    networks.create_model, 0.5, _sgd(), model_aggregator=mean
  ),
  "fed_sgd": lambda mean: _algorithms.build_fed_sgd(
    networks.create_model, _sgd(), model_aggregator=mean
  ),
  "weighted_mime_lite": lambda mean: _algorithms.build_weighted_mime_lite(
    networks.create_model,
    _sgd(momentum=0.9),
    model_aggregator=mean,
    full_gradient_aggregator=mean,
  ),
  "fed_recon": lambda mean: _algorithms.build_fed_recon(
    networks.create_reconstructed_model,
    loss_fn=tf.keras.losses.MeanSquaredError,
    client_weighting=tff.learning.ClientWeighting.UNIFORM,
    model_aggregator_factory=mean,
  ),
}


def _create_mechanism(name):
  options = {"restart_every": 2} if name == "adaptive_tree" else {}
  if registry.AGGREGATORS[name].adds_noise:
    options["noise_multiplier"] = 1e-6
  return registry.AGGREGATORS.create(name, clip_norm=8.0, **options)


def _run(process, started):
  """The weights that rounds of the same clients come to."""
  data = tff.tensorflow.computation(_read, np.str_)
  process = tff.simulation.compose_dataset_computation_with_learning_process(
    data, process
  )
  state = started.initialize(process)
  for _ in range(_ROUNDS):
    state, _ = started.next(state, ["1", "2", "3"])
  weights = started.structured_state(state).global_model_weights.trainable
  return [np.asarray(weight) for weight in weights]


def _read(client_id):
  """As many examples for each, so that weights change nothing."""
  number = tf.strings.to_number(client_id, tf.int64)
  x = tf.random.stateless_uniform(
    [4, networks.NUM_FEATURES], tf.stack([number, 1])
  )
  y = tf.reduce_sum(x, 1, keepdims=True) * tf.cast(number, tf.float32) / 9.0
  examples = collections.OrderedDict(x=x, y=y)
  return tf.data.Dataset.from_tensor_slices(examples).batch(4)


@functools.cache
def _expected(algorithm):
  """What TFF's own mean comes to."""
  mean = tff_aggregator._MeanFactory(tff.aggregators.UnweightedMeanFactory())
  with runtime.create_runtime("tff") as started:
    return _run(_ALGORITHMS[algorithm](mean), started)


_CELLS = [
  *(("weighted_fed_avg", name, "tff") for name in registry.AGGREGATORS),
  *(
    (algorithm, name, "in_process")
    for algorithm in _ALGORITHMS
    # One with much state, and one with another sum.
    for name in ("adaptive_tree", "secure_gaussian")
  ),
]
_QUICK = {("fed_sgd", "gaussian", "in_process")}


@pytest.mark.parametrize(
  ("algorithm", "name", "runtime_name"),
  [
    pytest.param(*cell, marks=[] if cell in _QUICK else [pytest.mark.slow])
    for cell in _CELLS
  ],
)
def test_tffs_algorithms_take_every_mechanism(algorithm, name, runtime_name):
  """With next to no noise, and no clipping, they do what TFF's mean does."""
  mean = fe.build_aggregator(
    _create_mechanism(name),
    clients_per_round=_CLIENTS,
    rounds=_ROUNDS,
  )
  with runtime.create_runtime(runtime_name) as started:
    found = _run(_ALGORITHMS[algorithm](mean), started)
  for one, other in zip(found, _expected(algorithm), strict=True):
    np.testing.assert_allclose(one, other, atol=2e-3)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_floats_are_aggregated_in_single_precision(dtype):
  value_type = tff.to_type(collections.OrderedDict(a=(dtype, [2]), b=dtype))
  factory = fe.build_aggregator(
    fe.Gaussian(noise_multiplier=1e-6, clip_norm=10.0), clients_per_round=2
  )
  process = factory.create(value_type)
  values = [
    collections.OrderedDict(a=np.array(a, dtype), b=dtype(b))
    for a, b in (([1, 2], 3), ([3, -2], 1))
  ]
  with runtime.create_runtime("tff"):
    output = process.next(process.initialize(), values)
  assert output.result["a"].dtype == dtype
  np.testing.assert_allclose(output.result["a"], [2, 0], atol=1e-2)
  np.testing.assert_allclose(output.result["b"], 2, atol=1e-2)


class _Own(mechanism.CorrelatedConfig):
  """Noise whose class says of its matrix what docs/extending.md asks for."""

  create_strategy = blt.BltConfig.create_strategy
  next_noise = staticmethod(blt.BltConfig.next_noise)
  num_buffers = 2
  objective = "rmse"


@pytest.mark.parametrize(
  ("own", "name"),
  [
    (fe.Banded(noise_multiplier=1.0, num_bands=4), "banded"),
    # It would be made for one round, where `epsilon` has all.
    (_Own(noise_multiplier=1.0), "_Own"),
  ],
)
def test_correlated_noise_without_its_rounds_is_refused(own, name):
  with pytest.raises(
    fe.FieldError, match=f"rounds must be given.*: noise of {name} is made"
  ):
    fe.build_aggregator(own, clients_per_round=3)
  fe.build_aggregator(own, clients_per_round=3, rounds=8, min_separation=4)


def test_a_round_more_than_was_asked_for_is_refused():
  """Its noise would be made for less, and `epsilon` would not count it."""
  process = fe.build_aggregator(
    fe.Tree(noise_multiplier=1e-6, clip_norm=10.0),
    clients_per_round=2,
    rounds=2,
  ).create(tff.to_type((np.float32, [2])))
  updates = [np.ones(2, np.float32)] * 2
  with runtime.create_runtime("tff"):
    state = process.initialize()
    for _ in range(2):
      output = process.next(state, updates)
      state = output.state
      np.testing.assert_allclose(output.result, 1.0, atol=1e-3)
    with pytest.raises(Exception, match="had rounds=2, and neither its noise"):
      process.next(state, updates)


def test_parts_of_another_kind_are_refused():
  with pytest.raises(fe.FieldError, match="mechanism must be a Mechanism"):
    fe.build_aggregator(fe.Gaussian, clients_per_round=3)
  banded = fe.Banded(noise_multiplier=1.0, num_bands=4)
  with pytest.raises(fe.FieldError, match="workload must be a Workload, found"):
    fe.build_aggregator(banded, clients_per_round=3, rounds=8, workload=0.9)


def test_the_page_runs_and_its_epsilon_is_that_of_account(tmp_path):
  """Its programs are run one after the other, as a reader would."""
  blocks = re.findall(r"```py\n(.*?)```", _PAGE.read_text(), re.DOTALL)
  assert sum(map(bool, blocks[0].splitlines())) <= 20
  names = {}
  with runtime.create_runtime("tff"):
    for block in blocks:
      exec(compile(block, str(_PAGE), "exec"), names)
  told = programs.call(
    "account",
    "epsilon",
    "--mechanism=banded",
    "--num_bands=4",
    "--noise_multiplier=1.4",
    "--participation=cyclic_poisson",
    "--period=4",
    "--users_per_round=500",
    "--num_users=20000",
    "--rounds=60",
    "--delta=2e-5",
    "--accountant=rdp,pld",
    f"--output_json={tmp_path / 'epsilon.json'}",
  )
  assert told.status == 0
  found = json.loads((tmp_path / "epsilon.json").read_text())
  assert names["epsilon_banded"] == found["epsilon"]
  assert names["epsilon"] > 0
