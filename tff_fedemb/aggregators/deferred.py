"""Queries that must know the shapes of what they are going to sum.

Correlated noise keeps state of the model's size. A factory learns the shapes
when a process is created, tensorflow-privacy's queries want them before.
"""

from collections.abc import Callable

import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp

BuildQueryFn = Callable[[tuple[tf.TensorSpec, ...]], tfp.SumAggregationDPQuery]


class DeferredQueryFactory(tff.aggregators.UnweightedAggregationFactory):
  """TFF's DP factory around the mean of a query that is built for the shapes.

  Privacy:
    That of the query: the division by a constant is post-processing.
  """

  def __init__(self, build_query: BuildQueryFn, *, clients_per_round: float):
    """Creates the factory.

    Args:
      build_query: From the nested shapes of a value to the query that sums.
      clients_per_round: Expected number of clients, the divisor.
    """
    self._build_query = build_query
    self._clients_per_round = float(clients_per_round)

  def create(
    self, value_type: tff.types.Type
  ) -> tff.templates.AggregationProcess:
    """Creates the aggregation of values of a type."""
    query = self._build_query(tff.types.type_to_tf_tensor_specs(value_type))
    return tff.aggregators.DifferentiallyPrivateFactory(
      tfp.NormalizedQuery(query, denominator=self._clients_per_round)
    ).create(value_type)
