"""Server optimizers by name, all of them TFF's."""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_fedemb import config

with epy.lazy_imports():
  import tensorflow_federated as tff

SERVER_OPTIMIZERS = ("sgd", "adam", "yogi")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerOptimizerConfig(config.Config):
  """What applies the aggregated update on the server.

  Adam and Yogi divide by a running estimate of the update's size, which is
  mostly noise under differential privacy.

  Attributes:
    server_optimizer: Server optimizer; the adaptive ones, adam and yogi, are
      for runs without noise.
    server_learning_rate: Server learning rate.
    server_momentum: Momentum of server optimizer sgd; 0 is plain SGD.
  """

  server_optimizer: str = config.field("sgd", choices=SERVER_OPTIMIZERS)
  server_learning_rate: float = config.field(1.0, minimum=0)
  server_momentum: float = config.field(0.9, minimum=0, below=1)

  def build(self) -> tff.learning.optimizers.Optimizer:
    """Builds TFF's optimizer."""
    rate = self.server_learning_rate
    if self.server_optimizer == "adam":
      return tff.learning.optimizers.build_adam(rate, epsilon=1e-3)
    if self.server_optimizer == "yogi":
      return tff.learning.optimizers.build_yogi(rate)
    return tff.learning.optimizers.build_sgdm(
      rate, self.server_momentum or None
    )
