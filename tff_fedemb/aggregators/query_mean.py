"""TFF's aggregation by a query of tensorflow-privacy."""

from collections.abc import Callable
import dataclasses

import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp


@dataclasses.dataclass(frozen=True, eq=False)
class QueryMeanFactory(tff.aggregators.UnweightedAggregationFactory):
  """TFF's DP factory of a query's sum / expected number of clients.

  Correlated noise keeps state of the model's size. A factory learns the shapes
  when a process is created, tensorflow-privacy's queries want them before.

  Privacy:
    As the query: the division by a constant is post-processing.

  Attributes:
    build_query: Maps the nested shapes of a value to the query, which clips,
      sums and adds the noise.
    clients_per_round: Expected number of virtual clients.
    sum_factory: Sums the clipped updates; None for TFF's plain sum.
  """

  build_query: Callable[[tuple[tf.TensorSpec, ...]], tfp.DPQuery]
  clients_per_round: float
  sum_factory: tff.aggregators.UnweightedAggregationFactory | None = None

  def create(
    self, value_type: tff.types.Type
  ) -> tff.templates.AggregationProcess:
    """Creates the process for values of a type."""
    query = self.build_query(tff.types.type_to_tf_tensor_specs(value_type))
    return tff.aggregators.DifferentiallyPrivateFactory(
      tfp.NormalizedQuery(query, float(self.clients_per_round)),
      record_aggregation_factory=self.sum_factory,
    ).create(value_type)
