"""The mechanisms as aggregators of TFF's own processes.

Any process of `tff.learning` takes one in place of its mean: FedAvg, FedSGD,
Mime, reconstruction, and your own. `planning.planning.epsilon` computes its
privacy cost.
"""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.mechanisms import mechanism as mechanism_lib
from tff_fedemb.mechanisms import strategy as strategy_lib


class _MeanFactory(
  tff.aggregators.UnweightedAggregationFactory,
  tff.aggregators.WeightedAggregationFactory,
):
  """A mechanism's mean in float32, for updates of any float type.

  Weights have no effect: a client with more examples would change the sum by
  more than the clip norm.
  """

  def __init__(self, factory: tff.aggregators.UnweightedAggregationFactory):
    self._factory = factory

  def create(
    self, value_type: tff.Type, weight_type: tff.Type | None = None
  ) -> tff.templates.AggregationProcess:
    """Creates the aggregation of values of a type, with weights or without.

    Args:
      value_type: Type of an update; floating-point numbers are cast to float32
        and back.
      weight_type: Type of a client's weight, which has no effect; None for an
        aggregation without weights.

    Returns:
      The process, whose result has the type of an update.

    Raises:
      errors.FieldError: If a tensor is not of floating-point numbers.
    """
    if weight_type is not None:
      weighted = tff.aggregators.as_weighted_aggregator(self)
      return weighted.create(value_type, weight_type)
    # Known when `narrow` is traced.
    dtypes = []

    def cast_to_float32(part: tf.Tensor):
      dtypes.append(part.dtype)
      return tf.cast(part, tf.float32) if part.dtype.is_floating else part

    @tff.tensorflow.computation(value_type)
    def narrow(value: Any):
      dtypes.clear()
      return tf.nest.map_structure(cast_to_float32, value)

    cast_type = narrow.type_signature.result
    process = self._factory.create(cast_type)
    if cast_type.is_equivalent_to(value_type):
      return process

    @tff.tensorflow.computation(cast_type)
    def widen(mean: Any):
      parts = zip(tf.nest.flatten(mean), dtypes, strict=True)
      widened = [tf.cast(part, dtype) for part, dtype in parts]
      return tf.nest.pack_sequence_as(mean, widened)

    @tff.federated_computation(
      process.initialize.type_signature.result,
      tff.types.FederatedType(value_type, tff.CLIENTS),
    )
    def next_round(state: Any, value: Any):
      output = process.next(state, tff.federated_map(narrow, value))
      return tff.templates.MeasuredProcessOutput(
        output.state,
        tff.federated_map(widen, output.result),
        output.measurements,
      )

    return tff.templates.AggregationProcess(process.initialize, next_round)


class _LimitedFactory(tff.aggregators.UnweightedAggregationFactory):
  """An aggregation that fails after the rounds that it was made for.

  Another round would release what neither the noise nor `epsilon` covers.
  """

  def __init__(
    self, factory: tff.aggregators.UnweightedAggregationFactory, rounds: int
  ):
    self._factory = factory
    self._rounds = rounds

  def create(self, value_type: tff.Type) -> tff.templates.AggregationProcess:
    """Creates the aggregation, whose state also counts the rounds."""
    process = self._factory.create(value_type)

    @tff.tensorflow.computation(np.int32)
    def count(rounds_done: tf.Tensor):
      is_left = tf.debugging.assert_less(
        rounds_done,
        self._rounds,
        message=f"build_aggregator had rounds={self._rounds}, and neither its"
        " noise nor its epsilon covers another one",
      )
      with tf.control_dependencies([is_left]):
        return rounds_done + 1

    @tff.federated_computation
    def initialize():
      state = collections.OrderedDict(
        mechanism=process.initialize(),
        rounds_done=tff.federated_value(0, tff.SERVER),
      )
      return tff.federated_zip(state)

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.types.FederatedType(value_type, tff.CLIENTS),
    )
    def next_round(state: Any, value: Any):
      output = process.next(state.mechanism, value)
      new_state = collections.OrderedDict(
        mechanism=output.state,
        rounds_done=tff.federated_map(count, state.rounds_done),
      )
      return tff.templates.MeasuredProcessOutput(
        tff.federated_zip(new_state), output.result, output.measurements
      )

    return tff.templates.AggregationProcess(initialize, next_round)


def build_aggregator(
  mechanism: mechanism_lib.MechanismConfig,
  *,
  clients_per_round: float,
  rounds: int | None = None,
  min_separation: int = 1,
  max_participations: int | None = None,
  workload: strategy_lib.Workload = strategy_lib.PREFIX_SUMS,
) -> tff.aggregators.UnweightedAggregationFactory:
  """Builds a mechanism as an aggregator for a process of TFF.

    process = tff.learning.algorithms.build_weighted_fed_avg(
      model_fn,
      client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
      model_aggregator=fe.build_aggregator(
        fe.Gaussian(noise_multiplier=1.0, clip_norm=0.1),
        clients_per_round=500,
      ),
    )

  Privacy:
    Unit: one client's update.
    Neighbouring relation: zero-out of one update.
    Sensitivity: the mechanism's clip norm, in a round.
    DpEvent: that of the mechanism for the rounds; `epsilon` also takes into
      account who takes part. The guarantee covers only what this aggregator
      releases: if a process has several aggregators, give it one of these for
      each. They see the same clients in a round, so k aggregators of noise
      multiplier z cost as much as one of z / sqrt(k). Training metrics are not
      private. A state is for one round: correlated noise is the same in two
      rounds from one state, and their difference has none. If a round has to
      run again, give it the same clients and data; independent noise is drawn
      anew, and the round counts twice.

  Args:
    mechanism: For instance `Gaussian(noise_multiplier=1.0, clip_norm=0.1)`.
    clients_per_round: Expected number of clients in a round, by which the sum
      is divided, whatever number takes part and whatever weights they have.
    rounds: Rounds of the whole training, for which correlated noise is made.
      The next round ends in an error of the runtime [no limit].
    min_separation: Fewest rounds from one participation of a client to the
      next; for correlated noise.
    max_participations: Most rounds that a client takes part in; for correlated
      noise [as many as the separation allows].
    workload: The server's optimizer, for which `Banded` and `Blt` make their
      noise: `Workload(momentum=0.9)` for SGD with that momentum; give `epsilon`
      the same one [plain SGD, the default of TFF's processes].

  Returns:
    A factory for unweighted and for weighted aggregation of float32, float16
    and float64 updates.

  Raises:
    FieldError: If a value is out of its range, or the mechanism's noise needs
      `rounds`.

  Examples:
    >>> import tensorflow_federated as tff
    >>> mechanism = fe.Gaussian(noise_multiplier=1.0, clip_norm=0.1)
    >>> factory = fe.build_aggregator(mechanism, clients_per_round=500)
    >>> isinstance(factory, tff.aggregators.WeightedAggregationFactory)
    True
  """
  checks.check_type("mechanism", mechanism, mechanism_lib.MechanismConfig)
  checks.check_type("workload", workload, strategy_lib.Workload)
  schedule = None
  if rounds is not None:
    schedule = mechanism_lib.Schedule(
      rounds=rounds,
      min_separation=min_separation,
      max_participations=max_participations,
    )
  try:
    made = mechanism.create(clients_per_round, schedule, workload)
  except errors.FieldError as error:
    if error.name != "schedule":
      raise
    raise error.renamed("rounds") from error
  if rounds is None:
    return _MeanFactory(made.factory)
  return _MeanFactory(_LimitedFactory(made.factory, rounds))
