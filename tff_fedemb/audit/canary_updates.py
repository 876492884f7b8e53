"""Clients who send a direction of their own in place of an update.

Andrew et al. 2023, "One-shot Empirical Privacy Estimation for Federated
Learning". In many dimensions random directions are nearly orthogonal to each
other and to what is learnt, so that one run has room for many canaries. Their
clients are those of the learning process: what they send is clipped, summed,
noised and divided as any update.
"""

import collections
from collections.abc import Callable, Mapping, Sequence
import dataclasses
import math
from typing import Any

import numpy as np
import tensorflow as tf

from tff_fedemb.algorithms import learning_process
from tff_fedemb.data import pipelines

_PREFIX = "canary update "
# A little more than what is clipped would be enough to meet the bound; with
# much more, clipping that does nothing shows.
_NORM_IN_CLIP_NORMS = 10.0

DatasetFn = Callable[[tf.Tensor], tf.data.Dataset]


@dataclasses.dataclass(frozen=True)
class CanaryUpdates:
  """Random directions, each the update of a client.

  The client of a canary gets its number as the only label of its data, below 0,
  and no image.

  Attributes:
    number: Number of canaries.
    clip_norm: L2 norm to which updates are clipped; those of canaries are ten
      times as long.
    seed: Seed of the directions. An attacker may know them.
  """

  number: int
  clip_norm: float
  seed: int

  def client_id(self, index: int) -> str:
    """The identifier of a canary's client."""
    return f"{_PREFIX}{index}"

  def wrap_dataset(
    self,
    create_client_dataset: DatasetFn,
    some_user: str,
  ) -> DatasetFn:
    """Adds the canaries' data sets to those of other clients.

    Args:
      create_client_dataset: Maps the identifier of another client to its data,
        batches of `x` and `y`; in TensorFlow operations only.
      some_user: Identifier of any of these.
    """

    def create_dataset(client_id):
      is_canary = tf.strings.regex_full_match(client_id, f"{_PREFIX}.*")
      others = create_client_dataset(tf.where(is_canary, some_user, client_id))
      number = tf.strings.regex_replace(client_id, _PREFIX, "")
      index = tf.strings.to_number(tf.where(is_canary, number, "0"), tf.int64)
      specs = others.element_spec
      image = tf.zeros(specs["x"].shape[1:], specs["x"].dtype)
      own = tf.data.Dataset.from_tensors(
        collections.OrderedDict(x=image[tf.newaxis], y=[-1 - index])
      )
      all_or_none = tf.where(is_canary, [0, 1], [-1, 0])
      num_others, num_own = tf.unstack(tf.cast(all_or_none, tf.int64))
      either = others.take(num_others).concatenate(own.take(num_own))
      return either.map(lambda batch: _ensure_shapes(batch, specs))

    return create_dataset

  def wrap_client_update(
    self,
    client_update: learning_process.ClientUpdateFn,
  ) -> learning_process.ClientUpdateFn:
    """Has the canaries' clients send their directions; others train.

    Args:
      client_update: Work of the other clients.
    """

    def update_or_canary(weights, dataset, round_num):
      first = pipelines.gather(dataset, max_elements=1)["y"]
      is_canary = tf.reduce_any(tf.less(first, 0))
      # All the same for every client; a canary trains on no example.
      trained = client_update(weights, dataset.map(_without_canary), round_num)
      shapes = [tensor.shape for tensor in tf.nest.flatten(weights.trainable)]
      delta = tf.cond(
        is_canary,
        lambda: self._direction(tf.reduce_max(-1 - first), shapes),
        lambda: tuple(trained.delta),
      )
      return trained._replace(delta=delta)

    return update_or_canary

  def _direction(
    self,
    index: Any,
    shapes: Sequence[Sequence[int]],
  ) -> tuple[tf.Tensor, ...]:
    sizes = [int(np.prod(shape)) for shape in shapes]
    flat = tf.random.stateless_normal(
      [sum(sizes)], tf.stack([tf.constant(self.seed, tf.int64), index])
    )
    flat *= _NORM_IN_CLIP_NORMS * self.clip_norm / tf.norm(flat)
    parts = zip(tf.split(flat, sizes), shapes, strict=True)
    return tuple(tf.reshape(part, shape) for part, shape in parts)

  def directions(self, shapes: Sequence[Sequence[int]]) -> np.ndarray:
    """Unit vectors, float32 `[number, size of the model]`.

    Args:
      shapes: Shapes of the trainable weights.
    """
    found = [
      flatten(self._direction(tf.constant(index, tf.int64), shapes))
      for index in range(self.number)
    ]
    return np.stack(found) / (_NORM_IN_CLIP_NORMS * self.clip_norm)


def _ensure_shapes(batch: Mapping[str, tf.Tensor], specs: Any) -> Any:
  """The batch, of shapes that are known before it is made."""
  return tf.nest.map_structure(
    lambda tensor, spec: tf.ensure_shape(tensor, spec.shape), batch, specs
  )


def _without_canary(batch):
  return tf.nest.map_structure(
    lambda tensor: tf.boolean_mask(tensor, tf.greater_equal(batch["y"], 0)),
    batch,
  )


def flatten(weights: Any) -> np.ndarray:
  """The numbers of some tensors end to end, float32."""
  return np.concatenate([np.ravel(part) for part in tf.nest.flatten(weights)])


class UpdateScores:
  """Evidence of each direction in the released models.

  Attributes:
    projections: How far the rounds moved the model along each direction, one
      array `[number]` a round, in the sense of a client's update: before minus
      after.
  """

  def __init__(
    self,
    canaries: CanaryUpdates,
    weights: Any,
    *,
    momentum: float = 0.0,
  ):
    """Starts with the model before the first round.

    Args:
      canaries: The directions.
      weights: The trainable weights.
      momentum: Momentum of the server's optimizer, which everybody knows: a
        round's own share of a movement is what momentum does not explain. 0
        where it is not SGD.
    """
    self._directions = canaries.directions(
      [np.shape(part) for part in tf.nest.flatten(weights)]
    )
    self._momentum = momentum
    self._first = self._weights = flatten(weights)
    self._movement = np.zeros_like(self._first)
    self._norms: list[float] = []
    self.projections: list[np.ndarray] = []

  def add(self, weights: Any) -> None:
    """Adds the model that a round released."""
    weights = flatten(weights)
    movement = self._weights - weights
    own = movement - self._momentum * self._movement
    self.projections.append(self._directions @ own)
    self._norms.append(float(np.linalg.norm(own)))
    self._weights = weights
    self._movement = movement

  def final_cosine(self) -> np.ndarray:
    """Cosine of each direction with the movement since the beginning."""
    total = self._first - self._weights
    return self._directions @ total / np.linalg.norm(total)

  def largest_cosine(self) -> np.ndarray:
    """Largest cosine of each direction with what one round did."""
    return np.max(
      [p / norm for p, norm in zip(self.projections, self._norms, strict=True)],
      axis=0,
    )

  def likelihood_ratio(
    self,
    *,
    sampling_probability: float,
    noise_multiplier: float,
    step: float,
  ) -> np.ndarray:
    """Logarithm of how much likelier the rounds are if a canary takes part.

    It is the best statistic of who knows all but the noise and who was drawn,
    where rounds draw users anew and their noise is independent.

    Args:
      sampling_probability: Probability that a user is in a round.
      noise_multiplier: Standard deviation of the noise on the sum over the clip
        norm.
      step: How far one clip norm in the sum moves the model.
    """
    signal = np.array(self.projections) / step
    ratios = (signal - 0.5) / noise_multiplier**2
    return np.sum(
      np.logaddexp(
        math.log1p(-sampling_probability),
        math.log(sampling_probability) + ratios,
      ),
      axis=0,
    )


def match(
  projections: np.ndarray,
  takes_part: np.ndarray,
  noise_matrix: np.ndarray,
) -> np.ndarray:
  """Likelihood-ratio statistics `[number]` of who knows the schedule.

  The rounds' noise has covariance R R^T; the best linear statistic for a signal
  a is a^T (R R^T)^-1 y (Neyman and Pearson). Where nobody is sampled the
  schedule is no secret; it would not be fair where the claim rests on sampling.

  Args:
    projections: `[rounds, number]`, as in `UpdateScores`.
    takes_part: Bool `[rounds, number]`.
    noise_matrix: R, as in `mechanisms.strategy.Strategy.round_noise_matrix`.
  """
  signals = takes_part.astype(np.float64)
  weights = np.linalg.solve(noise_matrix @ noise_matrix.T, signals)
  # All with the same noise; who is in no round tells nothing.
  norms = np.sqrt(np.sum(weights * signals, axis=0))
  scores = np.sum(weights * projections, axis=0)
  return np.divide(scores, norms, out=np.zeros_like(scores), where=norms > 0)
