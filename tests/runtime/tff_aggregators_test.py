"""Aggregators on the in-process runtime, beside TFF's own runtime.

`parity_test` has TFF's algorithms; the law of the noise, and that it is fresh,
is in `mechanisms/mechanisms_test`.
"""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tests.mechanisms import released
from tests.runtime import histories
from tff_fedemb import runtime
from tff_fedemb.runtime import secure_sums

_ROUNDS = (("3", "1", "4"), ("2", "5"), ("1", "2", "3", "4"))
_SHAPES = collections.OrderedDict(a=[3], b=[2, 2])
_SPECS = tree.map_structure_up_to(
  collections.OrderedDict(a=0, b=0), tf.TensorSpec, _SHAPES
)

_dp = tff.aggregators.DifferentiallyPrivateFactory
_sum = tff.aggregators.SumFactory
_estimation = tff.aggregators.PrivateQuantileEstimationProcess


def _measure(value):
  return collections.OrderedDict(result=value)


# Functions that make a factory without noise.
_FACTORIES = {
  **{
    name: getattr(tff.aggregators, name)
    for name in (
      *("DiscreteFourierTransformFactory", "HadamardTransformFactory"),
      *("MeanFactory", "SumFactory", "UnweightedMeanFactory"),
    )
  },
  "compression_aggregator": tff.learning.compression_aggregator,
  "robust_aggregator": tff.learning.robust_aggregator,
  "DifferentiallyPrivateFactory.gaussian_adaptive": lambda: (
    _dp.gaussian_adaptive(0.0, 3.0, clipped_count_stddev=0.0)
  ),
  "DifferentiallyPrivateFactory.gaussian_fixed": lambda: _dp.gaussian_fixed(
    0.0, 3.0, clip=2.0
  ),
  "DifferentiallyPrivateFactory.tree_adaptive": lambda: _dp.tree_adaptive(
    0.0, 3.0, record_specs=_SPECS, clipped_count_stddev=0.0
  ),
  "DifferentiallyPrivateFactory.tree_aggregation": lambda: _dp.tree_aggregation(
    noise_multiplier=0.0,
    clients_per_round=3.0,
    l2_norm_clip=2.0,
    record_specs=_SPECS,
  ),
  "EncodedSumFactory": lambda: (
    tff.aggregators.EncodedSumFactory.quantize_above_threshold(8, threshold=0)
  ),
  "PrivateQuantileEstimationProcess": lambda: tff.aggregators.clipping_factory(
    _estimation.no_noise(1.0, 0.5, 0.2), _sum()
  ),
  # Its sample has room for all clients.
  "UnweightedReservoirSamplingFactory": lambda: (
    tff.aggregators.UnweightedReservoirSamplingFactory(10)
  ),
  "add_debug_measurements": lambda: tff.learning.add_debug_measurements(
    tff.aggregators.MeanFactory()
  ),
  "add_debug_measurements_with_mixed_dtype": lambda: (
    tff.learning.add_debug_measurements_with_mixed_dtype(
      tff.aggregators.MeanFactory()
    )
  ),
  "add_measurements": lambda: tff.aggregators.add_measurements(
    _sum(), server_measurement_fn=_measure
  ),
  "as_weighted_aggregator": lambda: tff.aggregators.as_weighted_aggregator(
    tff.aggregators.UnweightedMeanFactory()
  ),
  "clipping_factory": lambda: tff.aggregators.clipping_factory(2.0, _sum()),
  "concat_factory": lambda: tff.aggregators.concat_factory(_sum()),
  "zeroing_factory": lambda: tff.aggregators.zeroing_factory(5.0, _sum()),
}


def _build_process(factory, dtype=np.float32):
  """Rounds of clients that send multiples of their number."""
  value_type = tff.to_type(
    collections.OrderedDict((k, (dtype, s)) for k, s in _SHAPES.items())
  )
  is_weighted = isinstance(factory, tff.aggregators.WeightedAggregationFactory)
  process = factory.create(
    value_type, *[tff.TensorType(np.float32)] * is_weighted
  )

  @tff.tensorflow.computation(np.str_)
  def create_value(client_id):
    number = tf.strings.to_number(client_id)
    if dtype == np.int32:
      number *= 10.0
    value = collections.OrderedDict(
      a=number * tf.constant([1.0, 2.0, -3.0]), b=tf.fill([2, 2], number)
    )
    return tf.nest.map_structure(lambda x: tf.cast(x, dtype), value)

  @tff.tensorflow.computation(np.str_)
  def create_weight(client_id):
    return tf.strings.to_number(client_id)

  @tff.federated_computation(
    process.initialize.type_signature.result,
    tff.FederatedType(np.str_, tff.CLIENTS),
  )
  def next_round(state, client_ids):
    weights = [tff.federated_map(create_weight, client_ids)] * is_weighted
    output = process.next(
      state, tff.federated_map(create_value, client_ids), *weights
    )
    return output.state, tff.federated_zip((output.result, output.measurements))

  return tff.templates.IterativeProcess(process.initialize, next_round)


@pytest.mark.parametrize(
  ("name", "options"),
  [
    ("tree", {"restart_every": 2}),
    pytest.param("adaptive_tree", {"restart_every": 2}, marks=pytest.mark.slow),
    pytest.param("blt", {}, marks=pytest.mark.slow),
    pytest.param("banded", {}, marks=pytest.mark.slow),
  ],
)
def test_seeded_noise_is_that_in_tff(name, options, reference):
  mechanism = released.create_mechanism(
    name,
    clients_per_round=3.0,
    clip_norm=2.0,
    noise_multiplier=0.05,
    noise_seed=3,
    rounds=len(_ROUNDS) + 2,
    min_separation=2,
    **options,
  )
  # Without clients, what is released is noise alone.
  rounds = (*_ROUNDS, (), ())
  process = _build_process(mechanism.factory)
  history = histories.compare(process, reference, rounds)
  *_, (_, (first, _)), (_, (second, _)) = history
  assert np.abs(first["a"]).min() > 0
  assert np.abs(first["a"] - second["a"]).min() > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", _FACTORIES)
def test_aggregates_as_in_tff(name, reference):
  # Some draw seeds as they start.
  histories.compare(
    _build_process(_FACTORIES[name]()), reference, _ROUNDS, same_start=True
  )


# Exact, but for what rounds to one of two neighbours at random.
_SECURE = {
  "secure": (lambda: tff.learning.secure_aggregator(weighted=False), 0.0),
  "fixed": (lambda: tff.aggregators.SecureSumFactory(2.0, -1.0), 0.0),
  "whole": (lambda: tff.aggregators.SecureSumFactory(15, -15), 0.0),
  "modular": (lambda: tff.aggregators.SecureModularSumFactory(13), 0.0),
  "distributed": (
    lambda: tff.learning.ddp_secure_aggregator(
      noise_multiplier=0.0, expected_clients_per_round=3
    ),
    1e-3,
  ),
}


@pytest.mark.parametrize(
  "name",
  [
    # `secure_sums_test` has sums worked out by hand.
    pytest.param(n, marks=[pytest.mark.slow] * (n not in ("whole", "modular")))
    for n in _SECURE
  ],
)
def test_aggregates_securely_as_in_tff(name, reference):
  secure_sums.allow_nested_aggregators()
  build, tolerance = _SECURE[name]
  dtype = np.int32 if name in ("whole", "modular") else np.float32
  histories.compare(
    _build_process(build(), dtype),
    reference,
    _ROUNDS,
    same_start=True,
    tolerance=tolerance,
  )


def _build_heavy_hitters(name):
  """Rounds of clients, each of which sends the letter that it begins with."""
  if name == "IbltFactory":
    value_type = tff.SequenceType(
      tff.to_type({"key": np.str_, "value": tff.TensorType(np.int64, [1])})
    )
    process = tff.analytics.IbltFactory(
      capacity=10, string_max_bytes=4, repetitions=3
    ).create(value_type)
    initialize = process.initialize
  else:
    count = tff.analytics.heavy_hitters.iblt.build_iblt_computation(
      capacity=10,
      string_max_bytes=4,
      secure_sum_bitwidth=20 if name == "secure" else None,
    )

    @tff.federated_computation
    def initialize():
      return tff.federated_value(0, tff.SERVER)

  @tff.tensorflow.computation(np.str_)
  def create_dataset(client_id):
    letters = tf.data.Dataset.from_tensors(tf.strings.substr(client_id, 0, 1))
    if name != "IbltFactory":
      return letters.batch(1)
    return letters.map(
      lambda x: {"key": x, "value": tf.constant([2], tf.int64)}
    )

  @tff.federated_computation(
    initialize.type_signature.result, tff.FederatedType(np.str_, tff.CLIENTS)
  )
  def next_round(state, client_ids):
    datasets = tff.federated_map(create_dataset, client_ids)
    if name != "IbltFactory":
      return state, count(datasets)
    output = process.next(state, datasets)
    return output.state, output.result

  return tff.templates.IterativeProcess(initialize, next_round)


# A trace of what decodes them takes ten seconds.
@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", "secure", "IbltFactory"])
def test_finds_heavy_hitters_as_tff_does(name, reference):
  process = _build_heavy_hitters(name)
  found = []
  with runtime.create_runtime() as started:
    for each in (started, reference):
      state = each.initialize(process)
      for client_ids in (["ann", "abe", "bob"], ["eve"]):
        state, output = each.next(state, client_ids)
        if name == "IbltFactory":
          words, counts = output.output_strings, output.string_values[:, 0]
        else:
          words, counts = output.heavy_hitters, output.heavy_hitters_counts
        found.append(dict(zip(words, counts, strict=True)))
  scale = 2 if name == "IbltFactory" else 1
  assert found == 2 * [{b"a": 2 * scale, b"b": scale}, {b"e": scale}]
