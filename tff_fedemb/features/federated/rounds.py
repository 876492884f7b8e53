"""The rounds of a federated fit, method by method.

Everything that is solved is solved by the code of central fits.
"""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import linalg
import tensorflow_federated as tff

from tff_fedemb.aggregators import gaussian
from tff_fedemb.features import budget as budget_lib
from tff_fedemb.features import feature_covariance
from tff_fedemb.features import gradient_steps
from tff_fedemb.features import least_squares
from tff_fedemb.features import method as method_lib
from tff_fedemb.features import noise
from tff_fedemb.features.federated import clients as clients_lib
from tff_fedemb.features.federated import processes
from tff_fedemb.features.federated import statistics
from tff_fedemb.runtime import base as runtime_base

# Names of releases; gradients have theirs in `gradient_steps`.
STATISTICS, COVARIANCE = "statistics", "covariance"


class Rounds:
  """Runs the rounds of a fit, all users in each, and records what they cost.

  Privacy:
    Unit: user.
    Neighbouring relation: add or remove one user.
    Sensitivity: `user_clip_norm`, of all that a user sends in a round.
    DpEvent: a `GaussianDpEvent` for each round, as the budget plans it; a round
      beyond those is refused.
  """

  def __init__(
    self,
    runtime: runtime_base.Runtime,
    clients: clients_lib.ClientExamples,
    releases: noise.Releases,
    budget: budget_lib.Budget,
    user_clip_norm: float,
  ):
    """Initialises the rounds.

    Args:
      runtime: Runs them.
      clients: Who takes part.
      releases: Records them.
      budget: Their noise.
      user_clip_norm: Bound of the L2 norm of what a client sends.
    """
    self.runtime = runtime
    self.clients = clients
    self._releases = releases
    self._budget = budget
    self._user_clip_norm = user_clip_norm

  def create_aggregator(
    self, name: str
  ) -> tff.aggregators.UnweightedAggregationFactory:
    """Creates the Gaussian mechanism of a release."""
    config = gaussian.GaussianConfig(
      clients_per_round=len(self.clients.client_ids),
      clip_norm=self._user_clip_norm,
      noise_multiplier=self._budget.noise_multipliers[name],
    )
    return config.create().factory

  def initialize(self, process: tff.learning.templates.LearningProcess) -> Any:
    """Returns the initial state of a process that takes examples."""
    create_dataset = tff.tensorflow.computation(
      self.clients.create_dataset, np.str_
    )
    return self.runtime.initialize(
      tff.simulation.compose_dataset_computation_with_learning_process(
        create_dataset, process
      )
    )

  def next(self, name: str, state: Any) -> Any:
    """Makes a release of the name; returns the state after the round."""
    self._releases.open(name, sensitivity=self._user_clip_norm)
    return self.runtime.next(state, self.clients.client_ids)[0]

  def weights(self, state: Any) -> Sequence[np.ndarray]:
    """Returns the model weights in a state."""
    return self.runtime.structured_state(state).global_model_weights.trainable


def fit(
  method: method_lib.Method,
  rounds: Rounds,
  client_options: Mapping[str, Any],
  *,
  covariance_share: float,
  total_weight: float,
) -> np.ndarray:
  """Returns the weights `[K, d]`.

  Args:
    method: Without defaults to fill in.
    rounds: Runs them.
    client_options: Of `statistics.ClientConfig`.
    covariance_share: Of `statistics.StatisticsConfig`.
    total_weight: Examples that all users count for at most.
  """
  if isinstance(method, least_squares.LeastSquares):
    covariance, class_sums = _release_statistics(
      STATISTICS, rounds, client_options, covariance_share
    )
    return least_squares.solve(covariance, class_sums, method.regularization)
  preconditioner = None
  if isinstance(method, feature_covariance.FeatureCovariance):
    covariance, _ = _release_statistics(
      COVARIANCE, rounds, client_options, covariance_share
    )
    factor = feature_covariance.factorize(
      covariance, method.regularization, num_examples=total_weight
    )
    preconditioner = linalg.cho_solve(factor, np.eye(len(covariance)))
  assert isinstance(method, gradient_steps.GradientMethod)
  return _descend(
    method,
    rounds,
    client_options,
    preconditioner=preconditioner,
    user_weight=total_weight / len(rounds.clients.client_ids),
  )


def _release_statistics(
  name: str,
  rounds: Rounds,
  client_options: Mapping[str, Any],
  covariance_share: float,
) -> tuple[np.ndarray, np.ndarray | None]:
  """Sums `x x'` and, if they have a share, by class `x`; in one round."""
  config = statistics.StatisticsConfig(
    **client_options, covariance_share=covariance_share
  )
  process = processes.build_statistics_process(
    config, aggregator=rounds.create_aggregator(name)
  )
  state = rounds.next(name, rounds.initialize(process))
  return config.restore(rounds.weights(state), len(rounds.clients.client_ids))


def _descend(
  method: gradient_steps.GradientMethod,
  rounds: Rounds,
  client_options: Mapping[str, Any],
  *,
  preconditioner: np.ndarray | None,
  user_weight: float,
) -> np.ndarray:
  """Makes the steps of gradient descent, one a round."""
  name = gradient_steps.GRADIENT
  config = statistics.GradientConfig(
    **client_options,
    loss=method.loss,
    gradient_clip_norm=method.gradient_clip_norm,
  )
  process = processes.build_gradient_process(
    config,
    aggregator=rounds.create_aggregator(name),
    server_optimizer=processes.build_optimizer(
      method.optimizer_name,
      learning_rate=method.learning_rate,
      momentum=method.momentum,
    ),
    gradient_scale=method.gradient_clip_norm / user_weight,
    preconditioned=preconditioner is not None,
  )
  state = rounds.initialize(process)
  if preconditioner is not None:
    state = processes.set_preconditioner(rounds.runtime, state, preconditioner)
  for _ in range(method.steps):
    state = rounds.next(name, state)
  return np.asarray(rounds.weights(state)[0], np.float64)
