"""A classifier that protects users, fitted as a federated computation.

The statistics of Mehta et al. 2022 (arXiv 2211.13403) as aggregations over
clients: least squares in one round, DP-FC in one and one for each step.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import math
import os
import tempfile
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_fedemb import runtime as runtime_lib
from tff_fedemb.aggregators import gaussian
from tff_fedemb.features import budget as budget_lib
from tff_fedemb.features import classifier
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import feature_covariance
from tff_fedemb.features import gradient_steps
from tff_fedemb.features import least_squares
from tff_fedemb.features import method as method_lib
from tff_fedemb.features import noise
from tff_fedemb.features.federated import clients as clients_lib
from tff_fedemb.features.federated import processes
from tff_fedemb.features.federated import settings as settings_lib
from tff_fedemb.features.federated import statistics
from tff_fedemb.runtime import base as runtime_base

UNIT = "user"
RELATION = "add or remove one user"
ASSUMPTIONS = (
  "the number of users is public: defaults and divisors are made of it",
  "every user takes part in every release: nothing is sampled",
  "an example is of one user, who has no others under another name",
  *classifier.SHARED_ASSUMPTIONS,
)
NOT_COVERED = (
  "accuracies measured on the training data",
  "what aggregators and runtimes measure in a round",
  "pseudo-randomness: noise is of TensorFlow's generator, which is not"
  " cryptographic and was given no seed",
  "floating-point arithmetic: sums are rounded, and noise is made of"
  ' floating-point numbers, of single precision (Mironov 2012, "On'
  ' significance of the least significant bits for differential privacy")',
)

# Names of releases; gradients have theirs in `gradient_steps`.
STATISTICS, COVARIANCE, _CLASS_SUM = "statistics", "covariance", "class_sum"


@dataclasses.dataclass(frozen=True)
class Rounds:
  """Runs the rounds of a fit, all users in each, and records what they cost.

  Privacy:
    Unit: user.
    Neighbouring relation: add or remove one user.
    Sensitivity: `user_clip_norm`, of all that a user sends in a round.
    DpEvent: a `GaussianDpEvent` for each round, as the budget plans it; a round
      beyond those is refused.

  Attributes:
    runtime: Runs them.
    clients: Who takes part.
    releases: Records them.
    budget: Their noise.
    user_clip_norm: Bound of the L2 norm of what a client sends.
  """

  runtime: runtime_base.Runtime
  clients: clients_lib.ClientExamples
  releases: noise.Releases
  budget: budget_lib.Budget
  user_clip_norm: float

  def create_aggregator(
    self, name: str
  ) -> tff.aggregators.UnweightedAggregationFactory:
    """Creates the Gaussian mechanism of a release."""
    config = gaussian.GaussianConfig(
      clients_per_round=len(self.clients.client_ids),
      clip_norm=self.user_clip_norm,
      noise_multiplier=self.budget.noise_multipliers[name],
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
    self.releases.open(name, sensitivity=self.user_clip_norm)
    return self.runtime.next(state, self.clients.client_ids)[0]

  def weights(self, state: Any) -> Sequence[np.ndarray]:
    """Returns the model weights in a state."""
    return self.runtime.structured_state(state).global_model_weights.trainable

  def release_statistics(
    self, name: str, config: statistics.StatisticsConfig
  ) -> tuple[np.ndarray, np.ndarray | None]:
    """Sums `x x'` and, if they have a share, by class `x`; in one round."""
    process = processes.build_statistics_process(
      config, aggregator=self.create_aggregator(name)
    )
    state = self.next(name, self.initialize(process))
    return config.restore(self.weights(state), len(self.clients.client_ids))


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class FederatedFeatureClassifier(classifier.LinearClassifier):
  """A linear classifier of features, fitted with user-level privacy.

  What a user sends in a round is the user's statistics, clipped all together:
  those of least squares are one release. Without noise, and with one example a
  user, the weights are those of `classifier.FeatureClassifier`.

  Privacy:
    Unit: user, with all examples.
    Neighbouring relation: add or remove one user. All users take part in every
      release, so that no sampling amplifies anything; sums are divided by the
      number of users, a public constant.
    Sensitivity: `user_clip_norm`, in the L2 norm of all that a user sends in a
      round.
    DpEvent: a `GaussianDpEvent` for each round, one for least squares, one
      before those of the steps for `FeatureCovariance`; `report_` has what
      happened.

  There is no seed: nothing is random but the noise, which the aggregator draws
  and nobody should know.

  Attributes:
    method: `Sgd` or `FeatureCovariance`, without a batch size, or
      `LeastSquares` with a shared covariance. This and all others before
      `example_weighting`: as of `classifier.LinearClassifier`, delta well below
      one over the number of users, and releases as of central fits.
    example_weighting: As of `settings.UserSettings`.
    user_clip_norm: Bound of what a user sends in a round, positive: in units of
      the contribution of one example of norm C. At most 1 for means. Where
      defaults and step sizes depend on the number of examples, it takes that of
      users times this bound.
    runtime: A key of `runtime.RUNTIMES`.
    work_dir: Where `fit` keeps a copy of the features while it runs; `None` for
      the system's folder of temporary files.
  """

  example_weighting: str = "sum"
  user_clip_norm: float = 1.0
  runtime: str = "in_process"
  work_dir: str | os.PathLike[str] | None = None

  def fit(
    self,
    features: np.ndarray,
    labels: np.ndarray,
    users: np.ndarray | Sequence,
  ) -> "FederatedFeatureClassifier":
    """Fits the classifier.

    Args:
      features: `[n, d]`.
      labels: `[n]`.
      users: Whose example each is, strings or integers `[n]`.

    Returns:
      The classifier itself.

    Raises:
      errors.FieldError: If an argument is out of its range, or epsilon out of
        reach.
    """
    settings_lib.check_method(self.method)
    settings = settings_lib.UserSettings(
      example_weighting=self.example_weighting,
      user_clip_norm=self.user_clip_norm,
      runtime=self.runtime,
    )
    examples = self._clipped(features, labels)
    users = clients_lib.check_users(users, examples.size.num_examples)
    num_users = len(np.unique(users))
    # As many examples as the users can count for: how many they have is theirs.
    total_weight = settings.user_clip_norm * num_users
    size = dataclasses.replace(
      examples.size, num_examples=max(1, round(total_weight))
    )
    budget, covariance_share, multipliers = self._calibrate(size)
    method = self.method.resolve(size, multipliers)
    # The aggregator makes the noise; these count, and refuse what is too much.
    releases = noise.Releases(budget, None)
    with (
      tempfile.TemporaryDirectory(dir=self.work_dir) as directory,
      runtime_lib.create_runtime(settings.runtime) as runtime,
    ):
      clients = clients_lib.ClientExamples(
        directory, np.asarray(features), examples.labels, users
      )
      weights = _fit(
        method,
        Rounds(runtime, clients, releases, budget, settings.user_clip_norm),
        {
          "dim": size.dim,
          "num_classes": size.num_classes,
          "clip_norm": size.clip_norm,
          "scaling": self.scaling,
          "example_weighting": settings.example_weighting,
        },
        covariance_share=covariance_share,
        total_weight=total_weight,
      )
    epsilon = releases.epsilon
    report = classifier.FitReport(
      epsilon,
      self.delta,
      budget.accountant,
      tuple(releases.to_json()),
      {
        **method.hyperparameters(),
        "example_weighting": settings.example_weighting,
        "user_clip_norm": settings.user_clip_norm,
      },
      UNIT,
      RELATION,
      ASSUMPTIONS,
      NOT_COVERED,
      classifier.find_warnings(epsilon, self.delta, num_users, unit=UNIT),
    )
    self._publish(weights, method, report)
    return self

  def _calibrate(
    self, size: examples_lib.ProblemSize
  ) -> tuple[budget_lib.Budget, float, dict[str, float]]:
    """Returns budget, covariance's share of its release, and noise by sum."""
    releases = self.method.plan_releases(size)
    calibrate = functools.partial(
      budget_lib.calibrate, epsilon=self.epsilon, delta=self.delta
    )
    if not isinstance(self.method, least_squares.LeastSquares):
      budget = calibrate(releases, split=self.split)
      multipliers = budget.noise_multipliers
      stddevs = {
        name: z * self.user_clip_norm for name, z in multipliers.items()
      }
      return budget, 1.0, stddevs
    # Without noise: the shares alone, as they would be of separate releases.
    planned = budget_lib.calibrate(
      releases, epsilon=math.inf, delta=None, split=self.split
    ).releases
    shares = {release.name: release.share for release in planned}
    share = shares[COVARIANCE] / (shares[COVARIANCE] + shares[_CLASS_SUM])
    budget = calibrate([budget_lib.PlannedRelease(STATISTICS)])
    stddev = budget.noise_multipliers[STATISTICS] * self.user_clip_norm
    return (
      budget,
      share,
      {
        COVARIANCE: stddev / math.sqrt(share),
        _CLASS_SUM: stddev / math.sqrt(1.0 - share),
      },
    )


def _fit(
  method: method_lib.Method,
  rounds: Rounds,
  client_options: Mapping[str, Any],
  *,
  covariance_share: float,
  total_weight: float,
) -> np.ndarray:
  """Returns the weights `[K, d]`; central fits' code solves what is solved."""
  of_covariance = statistics.StatisticsConfig(
    **client_options, covariance_share=covariance_share
  )
  if isinstance(method, least_squares.LeastSquares):
    covariance, class_sums = rounds.release_statistics(
      STATISTICS, of_covariance
    )
    return least_squares.solve(covariance, class_sums, method.regularization)
  preconditioner = None
  if isinstance(method, feature_covariance.FeatureCovariance):
    covariance, _ = rounds.release_statistics(COVARIANCE, of_covariance)
    preconditioner = method.invert(covariance, total_weight)
  assert isinstance(method, gradient_steps.GradientMethod)
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
    gradient_scale=method.gradient_clip_norm
    * len(rounds.clients.client_ids)
    / total_weight,
    preconditioned=preconditioner is not None,
  )
  state = rounds.initialize(process)
  if preconditioner is not None:
    state = processes.set_preconditioner(rounds.runtime, state, preconditioner)
  for _ in range(method.steps):
    state = rounds.next(name, state)
  return np.asarray(rounds.weights(state)[0], np.float64)
