"""Tests of the registry, and of what all methods promise.

A method publishes what its releases make of its sums. `_Recorder` keeps both,
and can make them say what others said: two data sets are compared
step by step with the same numbers published before.
"""

import dataclasses
import math

import numpy as np
import pytest

from tests.features import fits
from tff_fedemb.features import budget as budget_lib
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import noise
from tff_fedemb.features import registry

_NUM_CLASSES = 4
_CLIP_NORM = 2.0

_create = registry.METHODS.create
_METHODS = [
  _create("sgd", steps=3),
  _create("sgd", steps=3, gradient_clip_norm=0.5),
  _create("sgd", steps=3, loss="sigmoid", gradient_clip_norm=0.5),
  _create("least_squares", covariance="shared"),
  _create("least_squares", covariance="per_class", background_weight=0.3),
  _create("newton", steps=3),
  _create("newton", steps=3, hessian_clip_norm=0.1, gradient_clip_norm=0.1),
  _create("newton", steps=2, negative_weight=0.1, logit_bias=-1.0),
  _create("feature_covariance", steps=3, gradient_clip_norm=0.5),
]
# Whose gradients are far below the bound for the worst example too.
_LOOSE = [_METHODS[0], _METHODS[5], _METHODS[7]]
_of_all = pytest.mark.parametrize("method", _METHODS, ids=repr)


@dataclasses.dataclass
class _Made:
  """One release: its sums before and after the noise, part by part."""

  name: str
  sensitivity: float
  stddev: float
  parts: int
  totals: list[np.ndarray] = dataclasses.field(default_factory=list)
  released: list[np.ndarray] = dataclasses.field(default_factory=list)


class _Recorder(noise.Releases):
  """Records releases, and may repeat what was released before."""

  def __init__(self, budget, seed, repeat=None):
    super().__init__(budget, np.random.SeedSequence(seed))
    self._repeat = repeat
    self.made = []

  def open(self, name, *, sensitivity, parts=1):
    release = super().open(name, sensitivity=sensitivity, parts=parts)
    made = _Made(name, sensitivity, release.stddev, parts)
    self.made.append(made)
    number = len(self.made) - 1
    add_noise = release.add_noise

    def record(total):
      released = add_noise(total)
      if self._repeat is not None:
        released = self._repeat[number].released[len(made.totals)]
      made.totals.append(np.array(total))
      made.released.append(np.array(released))
      return np.array(released)

    release.add_noise = record
    return release


def _run(method, features, labels, *, num_examples=None, seed=0, repeat=None):
  """Fits with noise that is not calibrated; returns releases and weights."""
  examples = examples_lib.ClippedExamples(
    features, labels, num_classes=_NUM_CLASSES, clip_norm=_CLIP_NORM
  )
  # The number of examples is public: both of two neighbours have the same.
  examples.size = dataclasses.replace(
    examples.size, num_examples=num_examples or len(features)
  )
  planned = method.plan_releases(examples.size)
  multipliers = {release.name: 0.5 + i for i, release in enumerate(planned)}
  budget = budget_lib.Budget(planned, multipliers, 1.0, 1e-5)
  recorder = _Recorder(budget, seed, repeat)
  resolved = method.resolve(examples.size, multipliers)
  weights = resolved.fit(examples, recorder)
  made = recorder.made
  assert all(len(each.totals) == each.parts for each in made)
  # All that were planned, which the budget is of, were made.
  assert sorted(each.name for each in made) == sorted(
    release.name for release in planned for _ in range(release.count)
  )
  return made, weights


def _problem(num=11, dim=5, seed=0):
  rng = np.random.default_rng(seed)
  labels = rng.integers(_NUM_CLASSES, size=num)
  return rng.standard_normal([num, dim]), labels


def _neighbours(dtype):
  """Yields two data sets, of which one has an example more."""
  rng = np.random.default_rng(1)
  for number, size in enumerate([0.0, 1e-30, 0.1, 1.0, 1.0, 1e3, 1e9, 1e30]):
    features, labels = _problem(seed=number)
    added = size * rng.standard_normal(features.shape[1])
    label = rng.integers(_NUM_CLASSES)
    place = rng.integers(len(features) + 1)
    left = (
      np.insert(features, place, added, axis=0).astype(dtype),
      np.insert(labels, place, label),
    )
    yield left, (features.astype(dtype), labels)


@pytest.mark.parametrize(
  ("dtype", "rounding"), [(np.float64, 1e-12), (np.float32, 1e-5)]
)
@_of_all
def test_one_example_changes_a_release_by_the_sensitivity(
  monkeypatch, method, dtype, rounding
):
  # Chunks of few examples, with other neighbours in them.
  monkeypatch.setattr(examples_lib, "_NUMBERS_OF_CHUNK", 20)
  largest = {}
  for left, right in _neighbours(dtype):
    num_examples = len(left[0])
    first, _ = _run(method, *left, num_examples=num_examples)
    second, _ = _run(method, *right, num_examples=num_examples, repeat=first)
    for one, other in zip(first, second, strict=True):
      changes = map(np.subtract, one.totals, other.totals)
      share = math.hypot(*map(np.linalg.norm, changes)) / one.sensitivity
      assert share <= 1 + rounding
      largest[one.name] = max(largest.get(one.name, 0.0), share)
  # And the worst example comes close.
  for release, share in largest.items():
    assert share > (0.3 if method in _LOOSE else 0.999), release


@_of_all
def test_weights_are_made_of_releases_alone(method):
  # Other data, with the same numbers released, give the same weights.
  made, weights = _run(method, *_problem(seed=0))
  others, same = _run(method, *_problem(seed=1), repeat=made)
  for one, other in zip(made, others, strict=True):
    for left, right in zip(one.totals, other.totals, strict=True):
      assert (left != right).any()
  np.testing.assert_array_equal(weights, same)


@_of_all
def test_all_noise_is_new_and_as_large_as_said(monkeypatch, method):
  # As it is before it is rounded to a grid, where numbers meet.
  monkeypatch.setattr(noise, "_ROUNDING", 2.0**-60)
  # Without features nothing is released but the noise.
  features, labels = np.zeros([9, 30]), np.arange(9) % _NUM_CLASSES
  drawn = []
  for seed in (0, 1):
    releases, _ = _run(method, features, labels, seed=seed)
    for made in releases:
      assert not np.any(made.totals)
      drawn += [released.ravel() / made.stddev for released in made.released]
  numbers = np.concatenate(drawn)
  # At least 720 numbers: bounds at five standard errors, the last of which is
  # 1 / sqrt(2 n).
  num = len(numbers)
  assert num >= 720
  assert abs(numbers.mean()) < 5 / num**0.5
  assert abs(numbers.std() - 1) < 5 / (2 * num) ** 0.5
  # No number came twice, of either sign: two are as close by chance once in
  # 10^6 runs. And neither parts nor rows of them go together.
  assert np.diff(np.sort(np.abs(numbers))).min() > 2e-15
  rows = numbers[: num // 30 * 30].reshape([-1, 30])
  for blocks in (np.array([part[:120] for part in drawn]), rows):
    correlations = np.corrcoef(blocks) - np.eye(len(blocks))
    # Correlations of m numbers have lighter tails than a normal distribution.
    assert np.abs(correlations).max() < 6.5 / blocks.shape[1] ** 0.5


_DEFAULTS = [*map(_create, registry.METHODS), _METHODS[4]]


@pytest.mark.parametrize("method", _DEFAULTS)
def test_units_make_no_difference(method):
  # Sensitivities, noise and all defaults are in the features' unit.
  features, labels = _problem(num=40)
  options = {"epsilon": 5.0, "delta": 1e-3, "seed": 0}
  options["num_classes"] = _NUM_CLASSES
  small, large = (
    fits.fit(method, unit * features, labels, clip_norm=unit, **options)
    for unit in (1.0, 8.0)
  )
  atol = 1e-6 * np.abs(small).max()
  np.testing.assert_allclose(8 * large, small, rtol=1e-4, atol=atol)
