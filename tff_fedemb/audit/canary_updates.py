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
# One clip norm would meet the sensitivity; ten show clipping that does nothing.
_NORM_IN_CLIP_NORMS = 10.0

DatasetFn = Callable[[tf.Tensor], tf.data.Dataset]


@dataclasses.dataclass(frozen=True)
class CanaryUpdates:
  """Random directions, each the update of a client.

  A canary's client has a single example: a blank image, whose label is the
  number of the canary as -1 - number.

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
    """Returns the identifier of a canary's client: a prefix and its number.

    Args:
      index: Number of the canary, from 0.

    Returns:
      The identifier, by which `wrap_dataset` tells canaries from users.
    """
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
      some_user: Identifier of any of these clients.

    Returns:
      The same function for the identifiers of canaries too.
    """

    def create_dataset(client_id: tf.Tensor) -> tf.data.Dataset:
      """The data of a user, or the single example of a canary."""
      is_canary = tf.strings.regex_full_match(client_id, f"{_PREFIX}.*")
      user_id = tf.where(is_canary, some_user, client_id)
      others = create_client_dataset(user_id)
      suffix = tf.strings.regex_replace(client_id, _PREFIX, "")
      number = tf.where(is_canary, suffix, "0")
      index = tf.strings.to_number(number, tf.int64)
      specs = others.element_spec
      image = tf.zeros(specs["x"].shape[1:], specs["x"].dtype)
      batch = collections.OrderedDict(x=image[tf.newaxis], y=[-1 - index])
      own = tf.data.Dataset.from_tensors(batch)
      # Both data sets are in the graph; -1 takes all of one, 0 nothing.
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

    Returns:
      The work of all clients.
    """

    def update_or_canary(
      weights: Any, dataset: tf.data.Dataset, round_num: tf.Tensor
    ) -> Any:
      """The work of a client: it trains, or sends its direction.

      The graph is the same for every client; a canary trains on no example.
      """
      first = pipelines.gather(dataset, max_elements=1)["y"]
      is_canary = tf.reduce_any(tf.less(first, 0))
      examples = dataset.map(_without_canary)
      trained = client_update(weights, examples, round_num)
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
    """The update of a canary, in tensors of these shapes.

    It is a vector of independent normal numbers, scaled to ten clip norms: a
    function of the seed and the canary's number alone.

    Args:
      index: Number of the canary, scalar int64.
      shapes: Shapes of the trainable weights.
    """
    sizes = [int(np.prod(shape)) for shape in shapes]
    seed = tf.stack([tf.constant(self.seed, tf.int64), index])
    flat = tf.random.stateless_normal([sum(sizes)], seed)
    flat *= _NORM_IN_CLIP_NORMS * self.clip_norm / tf.norm(flat)
    return tuple(map(tf.reshape, tf.split(flat, sizes), shapes))

  def directions(self, shapes: Sequence[Sequence[int]]) -> np.ndarray:
    """Returns unit vectors, one for each canary.

    Args:
      shapes: Shapes of the trainable weights.

    Returns:
      Float32 `[number, size of the model]`, each along the update of a canary's
      client.
    """
    found = []
    for index in range(self.number):
      update = self._direction(tf.constant(index, tf.int64), shapes)
      found.append(flatten(update))
    return np.stack(found) / (_NORM_IN_CLIP_NORMS * self.clip_norm)


def _ensure_shapes(batch: Mapping[str, tf.Tensor], specs: Any) -> Any:
  """The batch, whose shapes are known while the graph is built.

  Joining two data sets may lose shapes that the client's work needs.
  """
  return tf.nest.map_structure(
    lambda tensor, spec: tf.ensure_shape(tensor, spec.shape), batch, specs
  )


def _without_canary(batch: Mapping[str, tf.Tensor]) -> Any:
  """The examples of a batch that are not a canary's: of labels from 0 on."""
  is_example = tf.greater_equal(batch["y"], 0)
  return tf.nest.map_structure(
    lambda tensor: tf.boolean_mask(tensor, is_example), batch
  )


def flatten(weights: Any) -> np.ndarray:
  """Returns the numbers of some tensors end to end.

  Args:
    weights: Nested tensors or arrays, of n numbers in all.

  Returns:
    Float32 `[n]`.
  """
  return np.concatenate([np.ravel(part) for part in tf.nest.flatten(weights)])


class UpdateScores:
  """Evidence of each direction in the released models.

  Attributes:
    projections: How far each round moved the model along each direction, one
      array `[number]` a round. As in a client's update, a movement is the model
      before minus that after.
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
      weights: The trainable weights, nested tensors or arrays.
      momentum: Momentum of the server's SGD, in [0, 1), which everybody knows;
        0 for another optimizer. The movement that momentum does not explain is
        the round's own.
    """
    shapes = [np.shape(part) for part in tf.nest.flatten(weights)]
    self._directions = canaries.directions(shapes)
    self._momentum = momentum
    self._first = self._weights = flatten(weights)
    self._movement = np.zeros_like(self._first)
    self._norms: list[float] = []
    self.projections: list[np.ndarray] = []

  def add(self, weights: Any) -> None:
    """Adds the model that a round released.

    Call it once for each round, in their order.

    Args:
      weights: Its trainable weights, in the structure of the first model.
    """
    weights = flatten(weights)
    movement = self._weights - weights
    own = movement - self._momentum * self._movement
    self.projections.append(self._directions @ own)
    self._norms.append(float(np.linalg.norm(own)))
    self._weights = weights
    self._movement = movement

  def final_cosine(self) -> np.ndarray:
    """Returns cosines with the movement since the beginning.

    An attacker who only sees the final model has this score.

    Returns:
      Float32 `[number]`, in [-1, 1]; NaN if the model has not moved.
    """
    total = self._first - self._weights
    return self._directions @ total / np.linalg.norm(total)

  def largest_cosine(self) -> np.ndarray:
    """Returns the largest cosines with what one round did.

    An attacker who sees the model after each round has this score. It needs at
    least one round.

    Returns:
      Float32 `[number]`, in [-1, 1].
    """
    norms = np.array(self._norms, np.float32)[:, np.newaxis]
    return np.max(np.array(self.projections) / norms, axis=0)

  def likelihood_ratio(
    self,
    *,
    sampling_probability: float,
    noise_multiplier: float,
    step: float,
  ) -> np.ndarray:
    """Returns how much likelier a member makes the rounds, as logarithms.

    This is the best statistic for an attacker who knows everything but the
    noise and who was drawn, where every round draws users anew and has
    independent noise.

    Args:
      sampling_probability: Probability that a user is in a round, in (0, 1).
      noise_multiplier: Standard deviation of the noise on the sum over the clip
        norm, above 0.
      step: How far one clip norm in the sum moves the model, above 0.

    Returns:
      Logarithms `[number]`, summed over the rounds.
    """
    signal = np.array(self.projections) / step
    ratios = (signal - 0.5) / noise_multiplier**2
    if_absent = math.log1p(-sampling_probability)
    if_present = math.log(sampling_probability) + ratios
    return np.sum(np.logaddexp(if_absent, if_present), axis=0)


def match(
  projections: np.ndarray,
  takes_part: np.ndarray,
  noise_matrix: np.ndarray,
) -> np.ndarray:
  """Returns likelihood-ratio statistics for a known schedule.

  The rounds' noise has covariance R R^T; the best linear statistic for a signal
  a is a^T (R R^T)^-1 y (Neyman and Pearson). The schedule is no secret where
  nobody is sampled. Do not use this where the claim rests on sampling: its
  attacker does not know the schedule.

  Args:
    projections: `[rounds, number]`, as in `UpdateScores`.
    takes_part: Bool `[rounds, number]`, whether a canary is in a round.
    noise_matrix: R `[rounds, k]`, as in
      `mechanisms.strategy.Strategy.round_noise_matrix`.

  Returns:
    Statistics `[number]`, of equal variance; 0 for a canary in no round.
  """
  signals = takes_part.astype(np.float64)
  weights = np.linalg.solve(noise_matrix @ noise_matrix.T, signals)
  norms = np.sqrt(np.sum(weights * signals, axis=0))
  scores = np.sum(weights * projections, axis=0)
  return np.divide(scores, norms, out=np.zeros_like(scores), where=norms > 0)
