"""Server optimizers by name, all of them TFF's."""

import math

import tensorflow_federated as tff

SERVER_OPTIMIZERS = ("sgd", "adam", "yogi")


def build_server_optimizer(
  name: str, *, learning_rate: float, momentum: float = 0.9
) -> tff.learning.optimizers.Optimizer:
  """Builds the optimizer that applies the aggregated update on the server.

  Adam and Yogi divide by a running estimate of the update's size, which is
  mostly noise under differential privacy: they are meant for non-private runs.

  Args:
    name: One of `SERVER_OPTIMIZERS`.
    learning_rate: Server learning rate, not negative.
    momentum: Momentum of "sgd" in [0, 1); 0 is plain SGD.

  Returns:
    A TFF optimizer.

  Raises:
    ValueError: If an argument is out of its range.
  """
  if name not in SERVER_OPTIMIZERS:
    raise ValueError(
      f"server_optimizer must be one of {list(SERVER_OPTIMIZERS)}, found"
      f" {name!r}."
    )
  if not 0.0 <= learning_rate < math.inf:
    raise ValueError(
      f"server_learning_rate must be at least 0, found {learning_rate}."
    )
  if not 0.0 <= momentum < 1.0:
    raise ValueError(f"server_momentum must be in [0, 1), found {momentum}.")
  if name == "adam":
    return tff.learning.optimizers.build_adam(learning_rate, epsilon=1e-3)
  if name == "yogi":
    return tff.learning.optimizers.build_yogi(learning_rate)
  return tff.learning.optimizers.build_sgdm(learning_rate, momentum or None)
