"""A classifier that protects users, fitted as a federated computation.

The statistics of Mehta et al. 2022 (arXiv 2211.13403) as aggregations over
clients: least squares in one round, DP-FC in one and one for each step.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
import os
import tempfile

import numpy as np

from tff_fedemb import runtime as runtime_lib
from tff_fedemb.features import budget as budget_lib
from tff_fedemb.features import classifier
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import least_squares
from tff_fedemb.features import method as method_lib
from tff_fedemb.features import noise
from tff_fedemb.features.federated import clients as clients_lib
from tff_fedemb.features.federated import rounds as rounds_lib
from tff_fedemb.features.federated import settings as settings_lib

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

_CLASS_SUM = "class_sum"


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
  """

  def __init__(
    self,
    method: method_lib.Method,
    *,
    num_classes: int,
    epsilon: float,
    delta: float | None = None,
    clip_norm: float = 1.0,
    scaling: str = "clip",
    split: Mapping[str, float] | None = None,
    example_weighting: str = "sum",
    user_clip_norm: float = 1.0,
    runtime: str = "in_process",
    work_dir: str | os.PathLike[str] | None = None,
  ):
    """Initialises the classifier; `fit` checks the values.

    Args:
      method: `Sgd` or `FeatureCovariance`, without a batch size, or
        `LeastSquares` with a shared covariance. This and all others before
        `example_weighting`: as of `classifier.FeatureClassifier`, delta well
        below one over the number of users, and releases as of central fits.
      example_weighting: As of `settings.UserSettings`.
      user_clip_norm: Bound of what a user sends in a round, positive: in units
        of the contribution of one example of norm C. At most 1 for means. Where
        defaults and step sizes depend on the number of examples, it takes that
        of users times this bound.
      runtime: A key of `runtime.RUNTIMES`.
      work_dir: Where `fit` keeps a copy of the features while it runs; `None`
        for the system's folder of temporary files.
    """
    super().__init__(
      method,
      num_classes=num_classes,
      epsilon=epsilon,
      delta=delta,
      clip_norm=clip_norm,
      scaling=scaling,
      split=split,
    )
    self.example_weighting = example_weighting
    self.user_clip_norm = user_clip_norm
    self.runtime = runtime
    self.work_dir = work_dir

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
    covariance_share = self._covariance_share(size)
    budget = self._calibrate(size)
    method = self.method.resolve(
      size, self._noise_by_statistic(budget, covariance_share)
    )
    # The aggregator makes the noise; these count, and refuse what is too much.
    releases = noise.Releases(budget, None)
    with (
      tempfile.TemporaryDirectory(dir=self.work_dir) as directory,
      runtime_lib.create_runtime(settings.runtime) as runtime,
    ):
      clients = clients_lib.ClientExamples(
        directory, np.asarray(features), examples.labels, users
      )
      weights = rounds_lib.fit(
        method,
        rounds_lib.Rounds(
          runtime, clients, releases, budget, settings.user_clip_norm
        ),
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

  def _covariance_share(self, size: examples_lib.ProblemSize) -> float:
    """Returns the covariance's part of the release that it is in."""
    if not isinstance(self.method, least_squares.LeastSquares):
      return 1.0
    # Without noise: the shares alone, as they would be of separate releases.
    planned = budget_lib.calibrate(
      self.method.plan_releases(size),
      epsilon=math.inf,
      delta=None,
      split=self.split,
    )
    shares = {release.name: release.share for release in planned.releases}
    covariance = shares[rounds_lib.COVARIANCE]
    return covariance / (covariance + shares[_CLASS_SUM])

  def _calibrate(self, size: examples_lib.ProblemSize) -> budget_lib.Budget:
    releases, split = self.method.plan_releases(size), self.split
    if isinstance(self.method, least_squares.LeastSquares):
      releases = (budget_lib.PlannedRelease(rounds_lib.STATISTICS),)
      split = None
    return budget_lib.calibrate(
      releases, epsilon=self.epsilon, delta=self.delta, split=split
    )

  def _noise_by_statistic(
    self, budget: budget_lib.Budget, covariance_share: float
  ) -> dict[str, float]:
    """Noise of the sums, in units of one example's contribution to each."""
    stddevs = {
      name: noise_multiplier * self.user_clip_norm
      for name, noise_multiplier in budget.noise_multipliers.items()
    }
    joint = stddevs.get(rounds_lib.STATISTICS)
    if joint is None:
      return stddevs
    return {
      rounds_lib.COVARIANCE: joint / math.sqrt(covariance_share),
      _CLASS_SUM: joint / math.sqrt(1.0 - covariance_share),
    }
