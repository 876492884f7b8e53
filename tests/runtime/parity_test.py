"""Parity of the in-process runtime with TFF's own, over many processes.

Without noise the two have to agree number by number, in the state and in the
metrics of every round. With noise they can agree only in distribution, which
is tested with a stated rate of false alarms. `in_process_test` does the former
for weighted federated averaging and for an unweighted one with clipping.
"""

import collections
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tff_fedemb import runtime
from tff_fedemb.aggregators import mechanism
from tff_fedemb.aggregators import registry
from tff_fedemb.algorithms import composition
from tff_fedemb.algorithms import fedavg
from tff_fedemb.algorithms import fedemb
from tff_fedemb.algorithms import local_training
from tff_fedemb.algorithms import server_optimizers
from tff_fedemb.models import heads
from tff_fedemb.runtime import base

# The models have it for their weights that are not trained.
pytestmark = pytest.mark.filterwarnings('ignore:Batch Normalization')

# Cohorts of different sizes, so that no round can pass for another.
_ROUNDS = (('3', '1', '4'), ('15', '9'), ('2', '6', '5', '3'))
_NUM_FEATURES = 3
_IMAGE_SHAPE = (4, 4, 1)
_NUM_CLASSES = 4


@pytest.fixture(name='reference', scope='module')
def _reference():
  with runtime.create_runtime('tff') as started:
    yield started


def _num_examples(number: int) -> int:
  """Clients weigh differently, and their last batches are not full."""
  return 5 + number % 4


def _draw(
    client_id: tf.Tensor,
    shape: Sequence[int],
    stream: int,
    low: int | float,
    high: int | float,
    dtype: tf.DType = tf.float32,
) -> tf.Tensor:
  """A client's own random numbers, one row per example."""
  number = tf.strings.to_number(client_id, tf.int64)
  # The count by itself would make shapes that nobody knows while tracing.
  rows = tf.random.stateless_uniform(
      [_num_examples(3), *shape], tf.stack([number, stream]), low, high, dtype
  )
  return rows[: _num_examples(number)]


def _without_optimizing(dataset: tf.data.Dataset) -> tf.data.Dataset:
  """Optimizing so small a pipeline takes longer than running it."""
  options = tf.data.Options()
  options.autotune.enabled = False
  options.experimental_optimization.apply_default_optimizations = False
  return dataset.with_options(options)


@tff.tensorflow.computation(np.str_)
def _create_examples(client_id):
  """A plane whose slope is the client's, with a bend."""
  x = _draw(client_id, [_NUM_FEATURES], 1, -1.0, 1.0)
  slope = tf.strings.to_number(client_id) / 10.0
  y = slope * tf.reduce_sum(x, axis=1, keepdims=True) + tf.abs(x[:, :1])
  return _without_optimizing(
      tf.data.Dataset.from_tensor_slices(
          collections.OrderedDict(x=x, y=y)
      ).batch(4)
  )


@tff.tensorflow.computation(np.str_)
def _create_points(client_id):
  return _without_optimizing(
      tf.data.Dataset.from_tensor_slices(
          _draw(client_id, [_NUM_FEATURES], 2, -2.0, 2.0)
      )
  )


@tff.tensorflow.computation(np.str_)
def _create_images(client_id):
  images = _draw(client_id, _IMAGE_SHAPE, 3, 0, 256, tf.int32)
  labels = _draw(client_id, [], 4, 0, _NUM_CLASSES, tf.int64)
  return _without_optimizing(
      tf.data.Dataset.from_tensor_slices(
          collections.OrderedDict(x=tf.cast(images, tf.uint8), y=labels)
      ).batch(3)
  )


def _create_model() -> tff.learning.models.VariableModel:
  """A network that has weights of both kinds, trainable or not."""
  inputs = tf.keras.Input([_NUM_FEATURES])
  hidden = tf.keras.layers.Dense(
      4,
      activation='tanh',
      kernel_initializer=tf.keras.initializers.GlorotUniform(seed=1),
  )(inputs)
  hidden = tf.keras.layers.BatchNormalization()(hidden)
  outputs = tf.keras.layers.Dense(
      1, kernel_initializer=tf.keras.initializers.GlorotUniform(seed=2)
  )(hidden)
  return tff.learning.models.from_keras_model(
      tf.keras.Model(inputs, outputs),
      loss=tf.keras.losses.MeanSquaredError(),
      metrics=[tf.keras.metrics.MeanAbsoluteError()],
      input_spec=collections.OrderedDict(
          x=tf.TensorSpec([None, _NUM_FEATURES]), y=tf.TensorSpec([None, 1])
      ),
  )


def _create_backbone() -> tf.keras.Model:
  return tf.keras.Sequential([
      tf.keras.layers.InputLayer(input_shape=_IMAGE_SHAPE),
      tf.keras.layers.Rescaling(1.0 / 255.0),
      tf.keras.layers.Flatten(),
      tf.keras.layers.Dense(
          3, kernel_initializer=tf.keras.initializers.GlorotUniform(seed=1)
      ),
  ])


def _own_options(client_optimizer: str, clip_norm: float) -> dict[str, Any]:
  """What `build_fedemb` and `build_fedavg` have in common."""
  return {
      'example_type': composition.build_example_type(_IMAGE_SHAPE),
      'aggregator': registry.create_mechanism(
          'gaussian',
          mechanism.AggregatorConfig(
              clients_per_round=3.0, clip_norm=clip_norm, noise_multiplier=0.0
          ),
      ).factory,
      'server_optimizer': server_optimizers.build_server_optimizer(
          'sgd', learning_rate=0.5, momentum=0.9
      ),
      'config': local_training.LocalTrainingConfig(
          client_learning_rate=0.1,
          head_lr_scale=3.0,
          head_warmup_steps=2,
          local_epochs=2,
          batch_size=4,
          client_optimizer=client_optimizer,
      ),
      'seed': 5,
  }


def _build_fedemb() -> tff.learning.templates.LearningProcess:
  return fedemb.build_fedemb(
      _create_backbone, heads.LinearHead(), **_own_options('adam', 0.9)
  )


def _build_fedavg() -> tff.learning.templates.LearningProcess:
  return fedavg.build_fedavg(
      _create_backbone,
      heads.LinearHead(),
      num_classes=_NUM_CLASSES,
      **_own_options('sgdm', 1.9),
  )


def _build_fed_prox() -> tff.learning.templates.LearningProcess:
  return tff.learning.algorithms.build_unweighted_fed_prox(
      _create_model,
      proximal_strength=0.5,
      client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
      server_optimizer_fn=tff.learning.optimizers.build_adam(0.1),
  )


def _build_mime_lite() -> tff.learning.templates.LearningProcess:
  return tff.learning.algorithms.build_mime_lite_with_optimizer_schedule(
      _create_model,
      learning_rate_fn=lambda round_num: 0.1
      / (1.0 + tf.cast(round_num, tf.float32)),
      base_optimizer=tff.learning.optimizers.build_sgdm(0.1, 0.9),
      server_optimizer=tff.learning.optimizers.build_sgdm(1.0, 0.9),
  )


def _build_fed_kmeans() -> tff.learning.templates.LearningProcess:
  return tff.learning.algorithms.build_fed_kmeans(
      4, (_NUM_FEATURES,), random_seed=(1, 2)
  )


class _History(NamedTuple):
  """What a runtime made of the rounds, in TFF's structures."""

  states: Sequence[Any]
  metrics: Sequence[Any]


def _run(started: base.Runtime, state: Any) -> _History:
  states, metrics = [started.structured_state(state)], []
  for client_ids in _ROUNDS:
    state, round_metrics = started.next(state, client_ids)
    states.append(started.structured_state(state))
    metrics.append(round_metrics)
  return _History(states, metrics)


def _assert_same(found: Any, expected: Any) -> None:
  """Same containers, types and shapes, and numbers that differ by rounding."""
  tree.assert_same_structure(found, expected, check_types=True)
  for (path, found_leaf), (_, expected_leaf) in zip(
      tree.flatten_with_path(found),
      tree.flatten_with_path(expected),
      strict=True,
  ):
    assert type(found_leaf) is type(expected_leaf), path
    # A scalar string comes as `bytes`.
    assert np.asarray(found_leaf).dtype == np.asarray(expected_leaf).dtype, path
    assert np.shape(found_leaf) == np.shape(expected_leaf), path
    if isinstance(expected_leaf, bytes):
      assert found_leaf == expected_leaf, path
    else:
      np.testing.assert_allclose(
          found_leaf, expected_leaf, rtol=1e-5, atol=1e-5, err_msg=str(path)
      )


def _compare(
    process: tff.learning.templates.LearningProcess,
    reference: base.Runtime,
    change_structure: Callable[[Any], Any] | None = None,
) -> _History:
  """Runs the rounds in both runtimes and compares all that comes of them.

  Args:
    process: Takes client ids.
    reference: The runtime of TFF.
    change_structure: Makes another initial state, for both, of the one that the
      process has; None for that one.

  Returns:
    What the in-process runtime computed.
  """
  histories = []
  with runtime.create_runtime('in_process', concurrent_clients=2) as started:
    for either in (started, reference):
      state = either.initialize(process)
      if change_structure is not None:
        state = either.load_state(
            change_structure(either.structured_state(state))
        )
      histories.append(_run(either, state))
  found, expected = histories
  _assert_same(found.states, expected.states)
  _assert_same(found.metrics, expected.metrics)
  return found


def _smallest_move(before: Any, after: Any) -> float:
  """How far the model's tensor that moved least is from where it was."""
  first, last = (
      # The model of k-means is one tensor.
      tree.flatten(
          getattr(
              state.global_model_weights,
              'trainable',
              state.global_model_weights,
          )
      )
      for state in (before, after)
  )
  return min(np.abs(b - a).max() for a, b in zip(first, last, strict=True))


@pytest.mark.parametrize(
    ('build', 'create_dataset'),
    [
        pytest.param(_build_fedemb, _create_images, id='fedemb'),
        pytest.param(_build_fedavg, _create_images, id='fedavg'),
        pytest.param(_build_fed_prox, _create_examples, id='fed_prox'),
        pytest.param(_build_mime_lite, _create_examples, id='mime_lite'),
        pytest.param(_build_fed_kmeans, _create_points, id='fed_kmeans'),
    ],
)
def test_training_matches_tff(build, create_dataset, reference):
  history = _compare(
      tff.simulation.compose_dataset_computation_with_learning_process(
          create_dataset, build()
      ),
      reference,
  )
  # The comparison means something only if the model has moved, in every round.
  for before, after in zip(
      history.states[:-1], history.states[1:], strict=True
  ):
    assert _smallest_move(before, after) > 5e-3
  if create_dataset is _create_images:
    # And only if clipping does something, though not all there is to do.
    shares = [m['aggregator']['clipped_share'] for m in history.metrics]
    assert all(0.0 < share < 1.0 for share in shares), shares
    counts = [m['client_work']['num_clients'] for m in history.metrics]
    assert counts == [len(client_ids) for client_ids in _ROUNDS]


def _with_weights_of_its_own(structure: Any) -> Any:
  """Weights that no initializer makes; positive, as a variance has to be."""
  generator = np.random.default_rng(0)
  return structure._replace(
      global_model_weights=tree.map_structure(
          lambda leaf: generator.uniform(0.5, 1.5, np.shape(leaf)).astype(
              np.float32
          ),
          structure.global_model_weights,
      )
  )


def test_evaluation_matches_tff(reference):
  process = tff.simulation.compose_dataset_computation_with_learning_process(
      _create_examples, tff.learning.algorithms.build_fed_eval(_create_model)
  )
  history = _compare(process, reference, _with_weights_of_its_own)
  # Evaluated with the weights that were loaded, which evaluation leaves alone.
  for state in history.states:
    tree.map_structure(
        np.testing.assert_array_equal,
        state.global_model_weights,
        _with_weights_of_its_own(state).global_model_weights,
    )
  evaluations = [m['client_work']['eval'] for m in history.metrics]
  counts = [
      sum(_num_examples(int(client_id)) for client_id in client_ids)
      for client_ids in _ROUNDS
  ]
  for kind, expected in (
      ('current_round_metrics', counts),
      ('total_rounds_metrics', np.cumsum(counts)),
  ):
    np.testing.assert_array_equal(
        [evaluation[kind]['num_examples'] for evaluation in evaluations],
        expected,
    )
  loss = evaluations[0]['current_round_metrics']['loss']
  expected_loss = _expected_loss(history.states[0].global_model_weights)
  np.testing.assert_allclose(loss, expected_loss, rtol=1e-4)


def _expected_loss(weights: tff.learning.models.ModelWeights) -> float:
  """The first round's loss in NumPy: no runtime that ignores weights has it."""
  kernel, bias, gamma, beta, last_kernel, last_bias = weights.trainable
  mean, variance = weights.non_trainable
  squares = []
  for client_id in _ROUNDS[0]:
    x = _draw(tf.constant(client_id), [_NUM_FEATURES], 1, -1.0, 1.0).numpy()
    y = int(client_id) / 10.0 * x.sum(axis=1) + np.abs(x[:, 0])
    hidden = np.tanh(x @ kernel + bias)
    hidden = (hidden - mean) / np.sqrt(variance + 1e-3) * gamma + beta
    squares.extend((hidden @ last_kernel + last_bias)[:, 0] - y)
  return float(np.mean(np.square(squares)))


# A release with noise. Two tensors of `_LENGTH` numbers, so that noise which
# they share would be seen. The three clients' updates have these norms, in
# units of the clip norm: two are clipped. The divisor is not their number, and
# no two factors of mean or noise are equal, so that none passes for another.
_NORMS = ('0.25', '1.5', '3')
_LENGTH = 1000
_CLIP_NORM = 2.0
_NOISE_MULTIPLIER = 0.05
_CLIENTS_PER_ROUND = 5.0
_NUM_NOISY_ROUNDS = 100
_TRUE_MEAN = (
    sum(min(float(norm), 1.0) for norm in _NORMS)
    * _CLIP_NORM
    / np.sqrt(2 * _LENGTH)
    / _CLIENTS_PER_ROUND
)
_TRUE_STDDEV = _NOISE_MULTIPLIER * _CLIP_NORM / _CLIENTS_PER_ROUND
_FALSE_ALARM_RATE = 1e-6


def _build_noise_process() -> tff.templates.IterativeProcess:
  """Rounds whose metrics are what our Gaussian mechanism releases."""
  value_type = tff.to_type([(np.float32, [_LENGTH]), (np.float32, [_LENGTH])])
  aggregation = registry.create_mechanism(
      'gaussian',
      mechanism.AggregatorConfig(
          clients_per_round=_CLIENTS_PER_ROUND,
          clip_norm=_CLIP_NORM,
          noise_multiplier=_NOISE_MULTIPLIER,
      ),
  ).factory.create(value_type)

  @tff.tensorflow.computation(np.str_)
  def _update(client_id):
    norm = tf.strings.to_number(client_id) * _CLIP_NORM
    tensor = tf.fill([_LENGTH], norm / np.sqrt(2 * _LENGTH, dtype=np.float32))
    return [tensor, tensor]

  @tff.federated_computation(
      aggregation.initialize.type_signature.result,
      tff.FederatedType(np.str_, tff.CLIENTS),
  )
  def _next(state, client_ids):
    output = aggregation.next(state, tff.federated_map(_update, client_ids))
    return output.state, output.result

  return tff.templates.IterativeProcess(aggregation.initialize, _next)


def _release(
    started: base.Runtime,
    process: tff.templates.IterativeProcess,
    num_rounds: int,
) -> np.ndarray:
  state = started.initialize(process)
  releases = []
  for _ in range(num_rounds):
    state, release = started.next(state, _NORMS)
    releases.append(release)
  return np.asarray(releases, np.float64)


@pytest.fixture(name='releases', scope='module')
def _releases(reference) -> dict[str, np.ndarray]:
  """Releases of both runtimes, `[rounds, tensor, number]`.

  Those in-process are of two runtimes, one after the other, since the second
  must not begin its noise where the first did.
  """
  process = _build_noise_process()
  halves = []
  for _ in range(2):
    with runtime.create_runtime('in_process') as started:
      halves.append(_release(started, process, _NUM_NOISY_ROUNDS // 2))
  return {
      'in_process': np.concatenate(halves),
      'tff': _release(reference, process, _NUM_NOISY_ROUNDS),
  }


def _two_sided(distribution: Any, value: float) -> float:
  return 2.0 * min(distribution.cdf(value), distribution.sf(value))


def _test_against_theory(releases: np.ndarray) -> dict[str, float]:
  """P-values of independent numbers of N(true mean, (z C / m)^2)."""
  p_values = {}
  for index in range(2):
    numbers = releases[:, index].ravel()
    scaled = (numbers - _TRUE_MEAN) / _TRUE_STDDEV
    count = len(scaled)
    p_values |= {
        f'mean of tensor {index}': _two_sided(
            stats.norm(), scaled.mean() * np.sqrt(count)
        ),
        f'variance of tensor {index}': _two_sided(
            stats.chi2(count), np.square(scaled).sum()
        ),
        f'shape of tensor {index}': stats.kstest(scaled, 'norm').pvalue,
    }
  return p_values


def _test_against_each_other(
    first: np.ndarray, second: np.ndarray
) -> dict[str, float]:
  """P-values of two samples of one normal distribution, whichever it is."""
  p_values = {}
  for index in range(2):
    numbers, others = first[:, index].ravel(), second[:, index].ravel()
    p_values |= {
        f'mean of tensor {index}': stats.ttest_ind(
            numbers, others, equal_var=False
        ).pvalue,
        f'variance of tensor {index}': _two_sided(
            stats.f(len(numbers) - 1, len(others) - 1),
            np.var(numbers, ddof=1) / np.var(others, ddof=1),
        ),
        f'shape of tensor {index}': stats.ks_2samp(numbers, others).pvalue,
    }
  return p_values


def _test_independence(*releases: np.ndarray) -> dict[str, float]:
  """P-values of noise that is fresh for each number, tensor, round and run."""
  # Any two tensors of all the rounds: noise that comes back, whenever.
  tensors = np.concatenate(releases).reshape(-1, _LENGTH)
  correlations = np.corrcoef(tensors)[np.triu_indices(len(tensors), k=1)]
  largest = np.abs(correlations).max()
  statistic = largest * np.sqrt((_LENGTH - 2) / (1.0 - largest**2))
  p_values = {
      'any two tensors': len(correlations)
      * _two_sided(stats.t(_LENGTH - 2), statistic)
  }
  # All pairs of a kind together: a correlation too weak to be seen in one.
  for run, release in enumerate(releases):
    for kind, first, second in (
        ('two tensors', release[:, 0], release[:, 1]),
        ('successive rounds', release[:-1], release[1:]),
        ('neighbours', release[..., :-1], release[..., 1:]),
    ):
      p_values[f'{kind} in run {run}'] = stats.pearsonr(
          first.ravel(), second.ravel()
      )[1]
  return p_values


def _alarms(p_values: Mapping[str, float]) -> dict[str, float]:
  """The p-values that are too small for all together to be by chance.

  With Bonferroni's correction: if everything is as it should be, there is any
  alarm at all at most with probability `_FALSE_ALARM_RATE`.
  """
  threshold = _FALSE_ALARM_RATE / len(p_values)
  # Not the other way around: NaN is an alarm.
  return {
      name: p_value
      for name, p_value in p_values.items()
      if not p_value >= threshold
  }


@pytest.mark.parametrize('name', ['in_process', 'tff'])
def test_release_has_the_stated_distribution(name, releases):
  """Every number released is of N(true mean, (z C / m)^2).

  False alarms: once in 10^6 runs at most, Bonferroni over six sub-tests (z-test
  of the mean, chi-square of the variance and Kolmogorov-Smirnov of the shape,
  for each of two tensors of 100,000 numbers).

  Power: the variance of 100,000 numbers has a standard error of 0.45 %, and
  2.4 % off make an alarm. Noise whose standard deviation is 5 % too large or
  too small (10 % in the variance) is missed less often than once in 10^50 runs,
  3 % once in 10^15, 2 % once in 10^3. The mean has a standard error of 0.3 % of
  itself: 5 % off, of which the wrong divisor would be a multiple, is missed
  less often than once in 10^25, 3 % less often than once in 10^5.
  """
  assert not _alarms(_test_against_theory(releases[name]))


def test_release_is_distributed_as_that_of_tff(releases):
  """Both runtimes draw from one distribution.

  False alarms: once in 10^6 runs at most, Bonferroni over six sub-tests
  (Welch's t-test of the means, F-test of the variances and Kolmogorov-Smirnov
  with two samples, for each of two tensors of 100,000 numbers of either).

  Power: the ratio of the variances has a standard error of 0.63 %, and 3.3 %
  off make an alarm. Noise whose standard deviation differs by 5 % is missed
  less often than once in 10^20 runs, by 3 % once in 10^4.
  """
  assert not _alarms(
      _test_against_each_other(releases['in_process'], releases['tff'])
  )


def test_noise_is_fresh(releases):
  """No number of the noise tells of another one.

  False alarms: once in 10^6 runs at most, Bonferroni over seven sub-tests. One
  is the largest correlation among the pairs that 400 tensors make, with
  Bonferroni's correction for the pairs; the others pool a runtime's pairs of a
  kind. Normal numbers that are independent have correlations whose
  distribution is known exactly.

  Power: noise that comes back in any other round, tensor, run or runtime has a
  correlation of 1 where 0.22 makes an alarm; a correlation of 5 % between the
  tensors of a round, between successive rounds or between neighbours is missed
  less often than once in 10^20 runs, one of 3 % less often than once in 10^4.
  """
  assert not _alarms(
      _test_independence(releases['in_process'], releases['tff'])
  )


def _synthetic(seed: int, scale: float = 1.0) -> np.ndarray:
  """Releases as they should be, except for the level of the noise."""
  return np.random.default_rng(seed).normal(
      _TRUE_MEAN, scale * _TRUE_STDDEV, [_NUM_NOISY_ROUNDS, 2, _LENGTH]
  )


def test_sound_noise_raises_no_alarm():
  first, second = _synthetic(1), _synthetic(2)
  assert not _alarms(_test_against_theory(first))
  assert not _alarms(_test_against_each_other(first, second))
  assert not _alarms(_test_independence(first, second))


@pytest.mark.parametrize('scale', [0.95, 0.97, 1.03, 1.05])
def test_wrong_noise_level_raises_an_alarm(scale):
  wrong = _synthetic(1, scale)
  assert 'variance of tensor 1' in _alarms(_test_against_theory(wrong))
  if abs(scale - 1.0) > 0.04:
    assert 'variance of tensor 1' in _alarms(
        _test_against_each_other(wrong, _synthetic(2))
    )


def test_wrong_mean_or_shape_raises_an_alarm():
  sound, other = _synthetic(1), _synthetic(2)
  # 5 % more than the true mean.
  shifted = sound + 0.05 * _TRUE_MEAN
  assert 'mean of tensor 0' in _alarms(_test_against_theory(shifted))
  assert 'mean of tensor 0' in _alarms(
      _test_against_each_other(sound + 0.1 * _TRUE_MEAN, other)
  )
  # The same mean and variance, but another distribution.
  laplace = np.random.default_rng(1).laplace(
      _TRUE_MEAN, _TRUE_STDDEV / np.sqrt(2.0), sound.shape
  )
  assert 'shape of tensor 0' in _alarms(_test_against_theory(laplace))
  assert 'shape of tensor 0' in _alarms(
      _test_against_each_other(laplace, other)
  )


def test_stale_noise_raises_an_alarm():
  sound, other = _synthetic(1), _synthetic(2)
  repeated = sound.copy()
  repeated[70, 1] = sound[3, 0]
  assert set(_alarms(_test_independence(repeated, other))) == {
      'any two tensors'
  }
  shared = sound.copy()
  shared[:, 1] = 0.05 * (sound[:, 0] - _TRUE_MEAN) + sound[:, 1]
  assert 'two tensors in run 0' in _alarms(_test_independence(shared, other))
  lingering = sound.copy()
  lingering[1:] += 0.05 * (sound[:-1] - _TRUE_MEAN)
  assert 'successive rounds in run 1' in _alarms(
      _test_independence(other, lingering)
  )
  smooth = sound.copy()
  smooth[..., 1:] += 0.05 * (sound[..., :-1] - _TRUE_MEAN)
  assert 'neighbours in run 0' in _alarms(_test_independence(smooth, other))
