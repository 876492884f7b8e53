"""TFF's aggregation by a query of tensorflow-privacy."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp


class QueryMeanFactory(tff.aggregators.UnweightedAggregationFactory):
  """TFF's DP factory of a query's sum / expected number of clients.

  Correlated noise keeps state of the model's size. A factory learns the shapes
  when a process is created, tensorflow-privacy's queries want them before.

  Privacy:
    As the query: the division by a constant is post-processing.
  """

  def __init__(
    self,
    build_query: Callable[[tuple[tf.TensorSpec, ...]], tfp.DPQuery],
    clients_per_round: float,
    **options: Any,
  ):
    """Creates the factory.

    Args:
      build_query: Maps the nested shapes of a value to the query, which clips,
        sums and adds the noise.
      clients_per_round: Expected number of virtual clients.
      **options: Options of `tff.aggregators.DifferentiallyPrivateFactory`.
    """
    self._build_query = build_query
    self._denominator = float(clients_per_round)
    self._options = options

  def create(
    self, value_type: tff.types.Type
  ) -> tff.templates.AggregationProcess:
    """Creates the process for values of a type."""
    query = self._build_query(tff.types.type_to_tf_tensor_specs(value_type))
    return tff.aggregators.DifferentiallyPrivateFactory(
      tfp.NormalizedQuery(query, self._denominator), **self._options
    ).create(value_type)
