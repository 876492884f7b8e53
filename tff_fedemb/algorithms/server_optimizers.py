"""Server optimizers, TFF's own: they apply the aggregated update.

Adam and Yogi divide by a running estimate of the update's size, which is mostly
noise under differential privacy: they are for runs without noise.
"""

from __future__ import annotations

import abc
import dataclasses

from etils import epy

from tff_fedemb import config
from tff_fedemb import registry
from tff_fedemb.mechanisms import strategy

with epy.lazy_imports():
  import tensorflow_federated as tff


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerOptimizer(config.Config, abc.ABC):
  """Settings of every server optimizer.

  Attributes:
    learning_rate: Server learning rate.
  """

  learning_rate: float = config.field(
    1.0, minimum=0, flag="server_learning_rate", searchable=True
  )

  def workload(self, noise_objective: str) -> strategy.Workload:
    """Returns how models depend on the rounds' sums, for correlated noise.

    Here models are plain prefix sums of the updates. A linear optimizer with a
    momentum overrides this.

    Args:
      noise_objective: Models in which noise is made small, see `Workload`.

    Returns:
      The workload that banded and BLT matrices are optimized for.
    """
    return dataclasses.replace(
      strategy.PREFIX_SUMS, noise_objective=noise_objective
    )

  @abc.abstractmethod
  def build(self) -> tff.learning.optimizers.Optimizer:
    """Builds TFF's optimizer from these settings.

    Returns:
      An optimizer that takes the aggregated update for a gradient.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class SgdMomentum(ServerOptimizer):
  """SGD with momentum.

  Attributes:
    momentum: Server momentum; 0 is plain SGD.

  Examples:
    >>> fe.SgdMomentum(learning_rate=2.0)
    SgdMomentum(learning_rate=2.0)
  """

  momentum: float = config.field(
    0.9, minimum=0, below=1, flag="server_momentum", searchable=True
  )

  def workload(self, noise_objective: str) -> strategy.Workload:
    """Includes the momentum: noise also acts on the models of later rounds."""
    return strategy.Workload(self.momentum, noise_objective)

  def build(self) -> tff.learning.optimizers.Optimizer:
    """Builds SGD; a momentum of 0 keeps no state for it."""
    return tff.learning.optimizers.build_sgdm(
      self.learning_rate, self.momentum or None
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adam(ServerOptimizer):
  """Adam, for runs without noise."""

  def build(self) -> tff.learning.optimizers.Optimizer:
    """Builds Adam with epsilon 1e-3; the other constants are TFF's."""
    return tff.learning.optimizers.build_adam(self.learning_rate, epsilon=1e-3)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Yogi(ServerOptimizer):
  """Yogi (Zaheer et al. 2018), for runs without noise."""

  def build(self) -> tff.learning.optimizers.Optimizer:
    """Builds Yogi with TFF's constants."""
    return tff.learning.optimizers.build_yogi(self.learning_rate)


# To add a server optimizer, write one class and add one line here.
SERVER_OPTIMIZERS: registry.Registry[ServerOptimizer] = registry.Registry(
  ServerOptimizer, {"sgd": SgdMomentum, "adam": Adam, "yogi": Yogi}
)
# The optimizer of a run that does not choose one.
DEFAULT = "sgd"
