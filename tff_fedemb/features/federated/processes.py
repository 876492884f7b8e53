"""Learning processes for classifiers on clients' features.

One for sums that are released once, the other for gradient steps: the
statistics of Mehta et al. 2022 (arXiv 2211.13403), each client's as one
contribution. They are composed as the training of embeddings is
(`algorithms.composition`); any aggregator and any runtime will do.
"""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb import checks
from tff_fedemb.algorithms import composition
from tff_fedemb.algorithms import local_training
from tff_fedemb.data import pipelines
from tff_fedemb.features import gradient_steps
from tff_fedemb.features.federated import statistics
from tff_fedemb.runtime import base as runtime_base

# Of Kingma and Ba 2015, as in central fits.
_ADAM_DECAY, _ADAM_EPSILON = 0.999, 1e-8
_PRECONDITIONER, _INNER = "preconditioner", "inner"


class _TakeUpdate(tff.learning.optimizers.Optimizer):
  """Puts the update in the place of the weights."""

  def initialize(self, specs: Any) -> Any:
    return ()

  def next(self, state: Any, weights: Any, gradients: Any) -> tuple[Any, Any]:
    return state, gradients


class _Adam(tff.learning.optimizers.Optimizer):
  """Adam on one tensor, as in algorithm 1 of the paper and in central fits.

  TFF's adds its epsilon before the correction of the bias, which makes another
  step of a small gradient in the first rounds.
  """

  def __init__(self, learning_rate: float, decay: float):
    self._learning_rate = learning_rate
    self._decays = {"mean": decay, "square": _ADAM_DECAY}

  def initialize(self, specs: Any) -> Any:
    (spec,) = specs
    zeros = tf.zeros(spec.shape, spec.dtype)
    return collections.OrderedDict(step=0, mean=zeros, square=zeros)

  def next(self, state: Any, weights: Any, gradients: Any) -> tuple[Any, Any]:
    (weights,), (gradient,) = weights, gradients
    step = state["step"] + 1
    moments, unbiased = {}, {}
    for name, value in (("mean", gradient), ("square", tf.square(gradient))):
      decay = self._decays[name]
      moments[name] = decay * state[name] + (1 - decay) * value
      # Near 1 a power in single precision has few digits of its difference.
      power = tf.pow(tf.constant(decay, tf.float64), tf.cast(step, tf.float64))
      unbiased[name] = moments[name] / tf.cast(1 - power, gradient.dtype)
    weights -= (
      self._learning_rate
      * unbiased["mean"]
      / (tf.sqrt(unbiased["square"]) + _ADAM_EPSILON)
    )
    return collections.OrderedDict(step=step, **moments), (weights,)


class _ScaledGradient(tff.learning.optimizers.Optimizer):
  """Scales a gradient `[K, d]`, its rows by a matrix, before the step."""

  def __init__(
    self,
    inner: tff.learning.optimizers.Optimizer,
    *,
    scale: float,
    preconditioned: bool,
  ):
    self._inner = inner
    self._scale = scale
    self._preconditioned = preconditioned

  def initialize(self, specs: Any) -> Any:
    (spec,) = specs
    state = collections.OrderedDict([(_INNER, self._inner.initialize(specs))])
    if self._preconditioned:
      state[_PRECONDITIONER] = tf.eye(spec.shape[1])
    return state

  def next(self, state: Any, weights: Any, gradients: Any) -> tuple[Any, Any]:
    (gradient,) = gradients
    gradient *= self._scale
    if self._preconditioned:
      gradient = tf.matmul(gradient, state[_PRECONDITIONER])
    state = collections.OrderedDict(state)
    state[_INNER], weights = self._inner.next(
      state[_INNER], weights, (gradient,)
    )
    return state, weights


def build_optimizer(
  name: str, *, learning_rate: float, momentum: float
) -> tff.learning.optimizers.Optimizer:
  """Builds the optimizer that makes the steps of `gradient_steps.Optimizer`.

  Args:
    name: One of `gradient_steps.OPTIMIZERS`.
    learning_rate: Positive.
    momentum: In [0, 1); Adam's first decay.

  Raises:
    errors.FieldError: If the name is unknown.
  """
  checks.check_choice("optimizer", name, gradient_steps.OPTIMIZERS)
  if name == "adam":
    return _Adam(learning_rate, momentum)
  return tff.learning.optimizers.build_sgdm(learning_rate, momentum or None)


def build_statistics_process(
  config: statistics.StatisticsConfig,
  *,
  aggregator: tff.aggregators.UnweightedAggregationFactory,
) -> tff.learning.templates.LearningProcess:
  """Builds the process of sums that are released once.

  After a round, its trainable model weights are what the aggregator made of the
  clients' statistics (`config.restore` undoes the scaling); before the first
  they are zeros. Rounds do not depend on one another.

  Privacy:
    Unit: one client, a user.
    Neighbouring relation: zero-out of one client's statistics, or adding or
      removing the client where all clients take part in a round.
    Sensitivity: the clip norm that the aggregator enforces on the whole stack
      of a client's statistics.
    DpEvent: the aggregator's.
    Not covered: the metrics (counts of examples and classes).

  Args:
    config: What clients add up.
    aggregator: Clips, sums and noises, all tensors together.

  Returns:
    A process whose `next` takes batches `OrderedDict(x=float32 [b, d],
    y=int64 [b])` of each client. Its metrics know no loss and no accuracy: they
    are 0.
  """

  def create_weights():
    return tff.learning.models.ModelWeights(
      tuple(tf.zeros(shape) for shape in config.shapes), ()
    )

  def client_update(weights, dataset, round_num):
    del weights, round_num
    examples = pipelines.gather(dataset)
    return _client_update(
      config.add_up(examples["x"], examples["y"]),
      examples["y"],
      loss_sum=tf.constant(0.0),
      num_correct=tf.constant(0, tf.int64),
    )

  return composition.build_learning_process(
    create_weights,
    client_update,
    example_type=composition.build_example_type((config.dim,), tf.float32),
    aggregator=aggregator,
    server_optimizer=_TakeUpdate(),
  )


def build_gradient_process(
  config: statistics.GradientConfig,
  *,
  aggregator: tff.aggregators.UnweightedAggregationFactory,
  server_optimizer: tff.learning.optimizers.Optimizer,
  gradient_scale: float = 1.0,
  preconditioned: bool = False,
) -> tff.learning.templates.LearningProcess:
  """Builds the process of gradient steps, from zero weights `[K, d]`.

  In a round the weights are broadcast, and the server's optimizer makes a step
  of `gradient_scale` G P, where G is what the aggregator made of the clients'
  gradients. P is a preconditioner `[d, d]` in the process's state, if it has
  one: the identity until `set_preconditioner` sets it.

  Privacy:
    As `build_statistics_process`, in every round. The preconditioner has to be
    public, or private by itself.
    Not covered: the metrics (loss, accuracy, counts).

  Args:
    config: What clients add up.
    aggregator: Clips, sums and noises.
    server_optimizer: As of `build_optimizer`.
    gradient_scale: For instance the norm that examples' gradients are clipped
      to, in units of which they are sent.
    preconditioned: Whether there is a P.

  Returns:
    A process as that of `build_statistics_process`, with a loss and an
    accuracy: those of the weights that were broadcast.
  """

  def create_weights():
    return tff.learning.models.ModelWeights(
      (tf.zeros([config.num_classes, config.dim]),), ()
    )

  def client_update(weights, dataset, round_num):
    del round_num
    examples = pipelines.gather(dataset)
    gradient, loss_sum, num_correct = config.add_up(
      weights.trainable[0], examples["x"], examples["y"]
    )
    return _client_update(
      (gradient,), examples["y"], loss_sum=loss_sum, num_correct=num_correct
    )

  return composition.build_learning_process(
    create_weights,
    client_update,
    example_type=composition.build_example_type((config.dim,), tf.float32),
    aggregator=aggregator,
    server_optimizer=_ScaledGradient(
      server_optimizer, scale=gradient_scale, preconditioned=preconditioned
    ),
  )


def set_preconditioner(
  runtime: runtime_base.Runtime, state: Any, preconditioner: np.ndarray
) -> Any:
  """Returns a state of a gradient process with another preconditioner.

  Args:
    runtime: Runs the process, which is preconditioned.
    state: Its state, in the runtime's own form.
    preconditioner: Symmetric `[d, d]`, used in single precision: that of the
      gradients, whose rounding it magnifies as it does its own.
  """
  structure = runtime.structured_state(state)
  finalizer = collections.OrderedDict(structure.finalizer)
  finalizer[_PRECONDITIONER] = np.asarray(preconditioner, np.float32)
  return runtime.load_state(structure._replace(finalizer=finalizer))


def _client_update(
  statistics: tuple[tf.Tensor, ...],
  labels: tf.Tensor,
  *,
  loss_sum: tf.Tensor,
  num_correct: tf.Tensor,
) -> composition.ClientUpdate:
  return composition.ClientUpdate(
    statistics,
    local_training.LocalTrainingResult(
      (), loss_sum, num_correct, tf.size(labels, tf.int64)
    ),
    tf.size(tf.unique(labels).y),
  )
