"""Fits that protect users, as federated computations.

They compute the statistics of Mehta et al. 2022 (arXiv 2211.13403) as
aggregations over clients: least squares in one round, DP-FC in one round and
one more for each step. Every user takes part in every round.
"""

from collections.abc import Callable, Sequence
import dataclasses
import math
import tempfile

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb import runtime as runtime_lib
from tff_fedemb.data import pipelines
from tff_fedemb.features import budget as budget_lib
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import feature_covariance
from tff_fedemb.features import gradient_steps
from tff_fedemb.features import least_squares
from tff_fedemb.features import method as method_lib
from tff_fedemb.features import noise
from tff_fedemb.features import settings as settings_lib
from tff_fedemb.features.federated import statistics
from tff_fedemb.mechanisms import gaussian
from tff_fedemb.runtime import base as runtime_base
from tff_fedemb.spec import array_task

# Names of releases; that of gradients is in `gradient_steps`.
STATISTICS = "statistics"
COVARIANCE = "covariance"


@dataclasses.dataclass(frozen=True)
class Rounds:
  """Runs the rounds of a fit, with all users in each, and records their cost.

  Privacy:
    Unit: user.
    Neighbouring relation: a user's slot stays empty.
    Sensitivity: `user_clip_norm`, of all that a user sends in a round.
    DpEvent: a `GaussianDpEvent` for each round, as the budget plans it; a round
      beyond those is refused.

  Attributes:
    runtime: Runtime of the rounds.
    create_dataset: Creates the examples of a client, '0', '1', ..., as
      `write_clients` returns it.
    num_clients: Number of clients, who all take part in every round.
    releases: Records the releases and knows their noise.
    user_clip_norm: Bound of the L2 norm of all that a client sends in a round,
      in units of `statistics`.
  """

  runtime: runtime_base.Runtime
  create_dataset: Callable[[tf.Tensor], tf.data.Dataset]
  num_clients: int
  releases: noise.Releases
  user_clip_norm: float

  def create_aggregator(
    self,
    name: str,
  ) -> tff.aggregators.UnweightedAggregationFactory:
    """Creates the Gaussian mechanism of a release.

    Args:
      name: Name of a planned release.

    Returns:
      An aggregator that clips each client, adds noise to the sum, and divides
      by the number of clients.
    """
    config = gaussian.GaussianConfig(
      clip_norm=self.user_clip_norm,
      noise_multiplier=self.releases.budget.noise_multipliers[name],
    )
    return config.create(self.num_clients).factory

  def begin(
    self,
    name: str,
    config: statistics.ClientConfig,
  ) -> Callable[..., Sequence[np.ndarray]]:
    """Prepares the rounds of a release.

    Args:
      name: Name of a planned release.
      config: Statistics of the clients.

    Returns:
      A function that makes the release, one round for each call. It takes the
      weights that are sent to clients, if they need any, and returns the
      aggregator's result. Do not call it after another call of `begin`. It
      raises `RuntimeError` if the release was made as often as planned.
    """
    aggregator = self.create_aggregator(name)
    process = tff.simulation.compose_dataset_computation_with_learning_process(
      tff.tensorflow.computation(self.create_dataset, np.str_),
      statistics.build_process(config, aggregator=aggregator),
    )
    state = self.runtime.initialize(process)

    def release(*weights: np.ndarray) -> Sequence[np.ndarray]:
      nonlocal state
      self.releases.open(name, sensitivity=self.user_clip_norm)
      structure = self.runtime.structured_state(state)
      if weights:
        sent = tuple(np.asarray(each, np.float32) for each in weights)
        model_weights = tff.learning.models.ModelWeights(sent, ())
        structure = structure._replace(global_model_weights=model_weights)
        state = self.runtime.load_state(structure)
      client_ids = list(map(str, range(self.num_clients)))
      state, _ = self.runtime.next(state, client_ids)
      structure = self.runtime.structured_state(state)
      return structure.global_model_weights.trainable

    return release

  def fit(
    self,
    method: method_lib.Method,
    size: examples_lib.ProblemSize,
    *,
    covariance_share: float,
  ) -> np.ndarray:
    """Computes weights from releases, as central fits do.

    Args:
      method: A method that protects users, with all its defaults.
      size: Size of the problem.
      covariance_share: As `statistics.StatisticsConfig` has it.

    Returns:
      Float64 `[K, d]`.
    """
    sums_config = statistics.StatisticsConfig(size, covariance_share)

    def release_sums(name: str) -> tuple[np.ndarray, ...]:
      release = self.begin(name, sums_config)
      return sums_config.restore(release(), self.num_clients)

    if isinstance(method, least_squares.LeastSquares):
      covariance, class_sums = release_sums(STATISTICS)
      regularization = checks.check_given(
        "regularization", method.regularization
      )
      return least_squares.solve(covariance, class_sums, regularization)
    preconditioner = None
    if isinstance(method, feature_covariance.FeatureCovariance):
      (covariance,) = release_sums(COVARIANCE)
      total_weight = self.user_clip_norm * self.num_clients
      preconditioner = method.invert(covariance, total_weight)
    assert isinstance(method, gradient_steps.GradientMethod)
    config = statistics.GradientConfig(size, method)
    release_gradient = self.begin(gradient_steps.GRADIENT, config)
    # Clients' gradients are in units of the norm that they are clipped to.
    clip_norm = checks.check_given(
      "gradient_clip_norm", method.gradient_clip_norm
    )
    scale = clip_norm / self.user_clip_norm

    def mean_gradient(weights: np.ndarray) -> np.ndarray:
      (gradient,) = release_gradient(weights)
      return scale * np.asarray(gradient, np.float64)

    return method.descend(mean_gradient, size, preconditioner)


def write_clients(
  directory: str,
  examples: examples_lib.ClippedExamples,
  slots: np.ndarray,
) -> Callable[[tf.Tensor], tf.data.Dataset]:
  """Writes the examples to a file, from which a client reads its own.

  Args:
    directory: Folder of the file.
    examples: All examples.
    slots: Number of the user of each, `[n]`, in 0, 1, ...

  Returns:
    A function from a client's id, '0', '1', ..., to its examples, in TensorFlow
    operations only: batches `OrderedDict(x=float32 [b, d], y=int64 [b])`.
  """
  chunks = [chunk.astype("f4") for chunk, _ in examples.chunks()]
  features = np.concatenate(chunks)
  order = np.argsort(slots, kind="stable")
  path = array_task.write_rows(directory, features, examples.labels, order)
  starts = np.append(0, np.cumsum(np.bincount(slots)))

  def create_dataset(client_id: tf.Tensor) -> tf.data.Dataset:
    dataset = array_task.read_client(
      path, client_id, starts, (examples.size.dim,)
    )
    return dataset.with_options(pipelines.build_options())

  return create_dataset


def fit(
  method: method_lib.Method,
  examples: examples_lib.ClippedExamples,
  users: np.ndarray,
  *,
  settings: settings_lib.UserSettings,
  epsilon: float,
  delta: float | None,
) -> tuple[np.ndarray, method_lib.Method, noise.Releases]:
  """Fits a classifier with user-level privacy.

  A user sends all statistics of a round together, clipped to one norm. Without
  noise, and with one example for each user, the weights equal those of a
  central fit. Defaults and step sizes that depend on the number of examples use
  the number of users times `user_clip_norm` instead. During the fit, the
  system's folder of temporary files has a copy of the features.

  Privacy:
    Unit: user, with all examples.
    Neighbouring relation: a user's slot stays empty. All users take part in
      every release, so that no sampling amplifies anything; sums are divided by
      the number of slots, a public constant.
    Sensitivity: `user_clip_norm`, in the L2 norm of all that a user sends in a
      round.
    DpEvent: a `GaussianDpEvent` for each round, one for least squares, one
      before those of the steps for `FeatureCovariance`.

  There is no seed: only the noise is random. The aggregator draws it, and
  nobody should know it.

  Args:
    method: `Sgd`, `FeatureCovariance`, or `LeastSquares` with a shared
      covariance.
    examples: All examples.
    users: User of each example, strings `[n]`.
    settings: Bound of a user's statistics, and the runtime.
    epsilon: Target, in (0, 100]; infinity for no noise.
    delta: In [1e-250, 1); may be `None` without noise.

  Returns:
    Weights `[K, d]`, the method with all its defaults, and the releases that
    were made.

  Raises:
    errors.FieldError: If the method is none of these, there is only one user,
      or epsilon cannot be reached.
  """
  settings_lib.check_method_of_users(method)
  names, slots = np.unique(users, return_inverse=True)
  bound = settings.user_clip_norm
  # The true number of examples is private. This is the largest number that the
  # clipped statistics of all users can stand for.
  counted = max(1, round(bound * len(names)))
  size = dataclasses.replace(examples.size, num_examples=counted)
  planned = method.plan_releases(size)
  shares = {}
  if isinstance(method, least_squares.LeastSquares):
    # One release of the stacked sums, each scaled by its share.
    total = sum(release.share for release in planned)
    shares = {release.name: release.share / total for release in planned}
    planned = (budget_lib.PlannedRelease(STATISTICS),)
  budget = budget_lib.calibrate(planned, epsilon=epsilon, delta=delta)
  if max(budget.noise_multipliers.values()) > checks.MAX_NOISE_MULTIPLIER:
    most = f"{checks.MAX_NOISE_MULTIPLIER:,.0f}"
    raise errors.FieldError(
      "epsilon", f"need noise of {most} clip norms at most at delta", epsilon
    )
  if budget.epsilon < math.inf:
    checks.check_not_alone("users", len(names))
  stddevs = {}
  for name, noise_multiplier in budget.noise_multipliers.items():
    stddevs[name] = noise_multiplier * bound
  for name, share in shares.items():
    stddevs[name] = stddevs[STATISTICS] / math.sqrt(share)
  method = method.resolve(size, stddevs)
  # The aggregator makes the noise. `releases` counts, and refuses too many.
  releases = noise.Releases(budget, np.random.SeedSequence())
  with (
    tempfile.TemporaryDirectory() as directory,
    runtime_lib.create_runtime(settings.runtime) as runtime,
  ):
    create_dataset = write_clients(directory, examples, slots)
    rounds = Rounds(runtime, create_dataset, len(names), releases, bound)
    weights = rounds.fit(
      method, size, covariance_share=shares.get(COVARIANCE, 1.0)
    )
  return weights, method, releases
