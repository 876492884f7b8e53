"""A private classifier with the interface of scikit-learn's estimators."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import math
from typing import Any

from etils import epy
import numpy as np
from sklearn import base
from sklearn.utils import validation

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.accounting import arithmetic
from tff_fedemb.data import arrays
from tff_fedemb.features import budget as budget_lib
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import method as method_lib
from tff_fedemb.features import noise
from tff_fedemb.features import settings

with epy.lazy_imports():
  from tff_fedemb.features.federated import rounds

# Defaults and divisors depend on the number of slots: removing a slot would
# change the fit. A neighbour has an empty slot instead.
_RELATIONS = {
  "example": "an example's slot stays empty; the number of slots is public",
  "user": "a user's slot stays empty; the number of slots is public",
}
# Assumptions of the guarantee, and releases that it does not cover, by
# protected unit.
_ASSUMPTIONS = {
  "example": (
    "the number of examples is public: defaults and divisors depend on it",
  ),
  "user": (
    "the number of users is public: defaults and divisors depend on it",
    "every user takes part in every release: nothing is sampled",
    "an example is of one user, and each user has one name",
  ),
}
_SHARED_ASSUMPTIONS = (
  "the number of classes is public, even if it was counted in the labels",
  "the map from data to features is public, or was trained on other data, or"
  " has a cost of its own",
  "hyperparameters were not chosen by other fits on the same data",
)
_NOT_COVERED = {
  "example": (
    "floating-point arithmetic in the sums, before they are rounded to the grid"
    " of their noise",
  ),
  "user": (
    "what aggregators and runtimes measure in a round",
    "floating-point arithmetic in the sums, of single precision, before they"
    " are rounded to the grid of their noise",
  ),
}
_PUBLISHED = (
  "accuracies and predictions, which have no noise: on the training data, and"
  " on the test examples, also those of users in the training data"
)


@dataclasses.dataclass(frozen=True)
class FitReport:
  """The releases of a fit, and their cost.

  Privacy:
    Unit: `unit`.
    Neighbouring relation: `neighboring_relation`.
    Sensitivity: 1 in each of the `releases`, whose noise multipliers are
      relative to it.
    DpEvent: spelled out in `releases`.

  Attributes:
    epsilon: Epsilon of all planned releases, which bounds that of those that
      were made; infinity without noise, and with noise from a seed, because
      anyone who knows the seed can remove the noise.
    epsilon_with_secret_noise: Epsilon of the same fit with secret noise.
    delta: Delta of the guarantee.
    accountant: Name of the accountant of epsilon.
    releases: JSON values for each kind of release that was made.
    hyperparameters: Hyperparameters of the method, defaults filled in.
    unit: Protected unit.
    neighboring_relation: In words.
    assumptions: Conditions of the guarantee.
    not_covered: Releases outside the guarantee.
    warnings: Reasons why the guarantee may be empty.
  """

  epsilon: float
  epsilon_with_secret_noise: float
  delta: float | None
  accountant: str
  releases: tuple[dict[str, Any], ...]
  hyperparameters: dict[str, Any]
  unit: str
  neighboring_relation: str
  assumptions: tuple[str, ...]
  not_covered: tuple[str, ...]
  warnings: tuple[str, ...]


# scikit-learn compares estimators by identity and has its own `repr`.
@dataclasses.dataclass(eq=False, repr=False)
class FeatureClassifier(base.ClassifierMixin, base.BaseEstimator):
  """A linear classifier of features, fitted with differential privacy.

  There is no intercept. To have one, append a constant to the features and
  raise `clip_norm` accordingly. `fit` checks the values.

  Privacy:
    Unit: example, or, if `users` is set, user with all examples.
    Neighbouring relation: the slot of one of them stays empty.
    Sensitivity, DpEvent: those of the method, or of `federated.rounds.fit`;
      `report_` has the events of a fit.

  Attributes:
    method: Method of the fit.
    num_classes: Labels are in [0, num_classes); public.
    epsilon: Target, in (0, 100]; infinity for no noise.
    delta: In (0, 1), well below 1 / (number of protected units); may be `None`
      without noise.
    clip_norm: C, in [1e-10, 1e10], bound of the L2 norm of features; it is
      never computed from the data.
    seed: Seed of the noise, for experiments; `None` for 128 secret bits
      of the operating system. Noise that protects users takes no seed.
    users: Settings for protecting users; `None` protects examples.
    coef_: Weights, float64 `[num_classes, dim]`, after `fit`.
    classes_: `[num_classes]`: 0, 1, ...
    n_features_in_: dim, the length of a feature vector.
    report_: A `FitReport`.

  Examples:
    >>> features = np.random.default_rng(0).normal(size=[1000, 8])
    >>> labels = (features[:, 0] > 0).astype(int)
    >>> private = classifier.FeatureClassifier(
    ...   least_squares.LeastSquares(), num_classes=2, epsilon=1.0, delta=1e-5
    ... )
    >>> private.fit(features, labels).predict(features[:3]).shape
    (3,)
  """

  method: method_lib.Method
  _: dataclasses.KW_ONLY
  num_classes: int
  epsilon: float
  delta: float | None = None
  clip_norm: float = 1.0
  seed: int | None = None
  users: settings.UserSettings | None = None

  def fit(
    self,
    features: np.ndarray,
    labels: np.ndarray,
    users: np.ndarray | Sequence | None = None,
  ) -> FeatureClassifier:
    """Fits the classifier.

    Args:
      features: `[n, d]` real numbers; vectors longer than `clip_norm` are
        scaled down to it.
      labels: `[n]`, integers in [0, num_classes).
      users: User of each example, strings or integers `[n]`, if users are
        protected; not used otherwise.

    Returns:
      The classifier itself.

    Raises:
      errors.FieldError: If an argument is out of its range, epsilon cannot be
        reached, or the weights overflow.
    """
    if not isinstance(self.method, method_lib.Method):
      raise errors.FieldError("method", "be a Method", repr(self.method))
    if self.seed is not None:
      checks.check_integer("seed", self.seed, minimum=0)
    examples = self._clipped(features, labels)
    size = examples.size
    if self.users is not None:
      users = arrays.to_names("users", users, size.num_examples)
      weights, method, releases = rounds.fit(
        self.method,
        examples,
        users,
        settings=self.users,
        epsilon=self.epsilon,
        delta=self.delta,
      )
      num_users = len(np.unique(users))
      self._publish(weights, method, releases, num_protected=num_users)
      return self
    budget = budget_lib.calibrate(
      self.method.plan_releases(size), epsilon=self.epsilon, delta=self.delta
    )
    if budget.epsilon < math.inf:
      checks.check_not_alone("examples", size.num_examples)
    method = self.method.resolve(size, budget.noise_multipliers)
    (seed,) = np.random.SeedSequence(self.seed).spawn(1)
    releases = noise.Releases(budget, seed)
    weights = method.fit(examples, releases)
    self._publish(weights, method, releases, num_protected=size.num_examples)
    return self

  def decision_function(self, features: np.ndarray) -> np.ndarray:
    """Computes logits, without the bias that a sigmoid loss adds to all.

    Args:
      features: `[n, d]`, with as many columns as those of `fit`; they are
        clipped as in `fit`.

    Returns:
      `[n, num_classes]`, float64 if the features are, else float32.

    Raises:
      sklearn.exceptions.NotFittedError: Before `fit`.
      errors.FieldError: If features are of another shape, or not finite.
    """
    validation.check_is_fitted(self, "coef_")
    features = arrays.to_array("features", features)
    dim = self.coef_.shape[1]
    if features.ndim != 2 or features.shape[1] != dim:
      found = list(features.shape)
      raise errors.FieldError("features", f"be [n, {dim}]", found)
    examples = self._clipped(features, np.zeros(len(features), np.int64))
    logits = []
    for chunk, _ in examples.chunks(wide=self.num_classes):
      logits.append((chunk @ self.coef_.T).astype(examples.dtype))
    return np.concatenate(logits)

  def predict(self, features: np.ndarray) -> np.ndarray:
    """Predicts the class with the largest logit.

    Args:
      features: `[n, d]`, as in `decision_function`.

    Returns:
      Classes, int64 `[n]`.

    Raises:
      sklearn.exceptions.NotFittedError: Before `fit`.
      errors.FieldError: If features are of another shape, or not finite.
    """
    return self.decision_function(features).argmax(axis=1)

  def _clipped(
    self,
    features: np.ndarray,
    labels: np.ndarray,
  ) -> examples_lib.ClippedExamples:
    """Checks examples, and clips their features when they are read."""
    return examples_lib.ClippedExamples(
      arrays.to_array("features", features),
      labels,
      num_classes=self.num_classes,
      clip_norm=self.clip_norm,
    )

  def _publish(
    self,
    weights: np.ndarray,
    method: method_lib.Method,
    releases: noise.Releases,
    *,
    num_protected: int,
  ) -> None:
    """Sets the fitted attributes; `num_protected` is the number of units.

    Raises:
      errors.FieldError: If the weights are not finite.
    """
    values = dataclasses.asdict(method)
    if not np.isfinite(weights).all():
      name = "regularization"
      requirement = "larger"
      if "learning_rate" in values:
        name = "learning_rate"
        requirement = "smaller"
      must = f"be {requirement} than {values[name]:g}"
      raise errors.FieldError(name, must, "weights that are not finite numbers")
    self.coef_ = weights
    self.classes_ = np.arange(self.num_classes)
    self.n_features_in_ = weights.shape[1]
    budget = releases.budget
    claimed = budget.epsilon
    if not self._has_secret_noise:
      claimed = math.inf
    unit = "user" if self.users else "example"
    self.report_ = FitReport(
      epsilon=claimed,
      epsilon_with_secret_noise=budget.epsilon,
      delta=budget.delta,
      accountant=budget_lib.ACCOUNTANT,
      releases=tuple(releases.to_json()),
      hyperparameters=values,
      unit=unit,
      neighboring_relation=_RELATIONS[unit],
      assumptions=_ASSUMPTIONS[unit] + _SHARED_ASSUMPTIONS,
      not_covered=(_PUBLISHED,) + _NOT_COVERED[unit],
      warnings=tuple(self._warnings(budget, unit, num_protected)),
    )

  @property
  def _has_secret_noise(self) -> bool:
    """Whether nobody can know the noise; that for users takes no seed."""
    return self.seed is None or self.users is not None

  def _warnings(
    self,
    budget: budget_lib.Budget,
    unit: str,
    num_protected: int,
  ) -> list[str]:
    """Lists the reasons why the guarantee may be empty; none without noise."""
    delta = budget.delta
    if delta is None or budget.epsilon == math.inf:
      return []
    warnings = []
    if delta * num_protected >= 1:
      warnings.append(
        f"delta {delta:g} is not below 1 / {num_protected:,}, one over the"
        f" number of {unit}s: a fit with this delta may publish the data of"
        " some"
      )
    if not self._has_secret_noise:
      warnings.append(
        "the noise is from a seed, and anyone who knows the seed can remove it:"
        " no epsilon is claimed; the report has the one of secret noise"
      )
    warnings += arithmetic.warnings_of_end(
      1.0 / min(budget.noise_multipliers.values()),
      sum(release.count for release in budget.releases),
      delta,
      reach=arithmetic.NOISE_REACH if self.users else noise.REACH,
    )
    return warnings
