"""Small processes on client ids, whose results can be worked out by hand."""

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

CLIP_NORM = 10.0
EXPECTED_CLIENTS = 4
# Its computation never ends.
STUCK_CLIENT_ID = "-1"


@tff.tensorflow.computation(np.str_)
def _number(client_id):
  # As damaged data may be, this is no UTF-8.
  text = tf.strings.regex_replace(client_id, "damaged", b"damaged \xff")
  number = tf.strings.to_number(text)
  end = tf.where(number < 0.0, np.int64(2**62), np.int64(0))
  (step,) = tf.while_loop(
    lambda step: step < end, lambda step: [step + 1], [np.int64(0)]
  )
  # A loop whose result nobody needs would be optimized away.
  return [tf.reshape(number + tf.cast(step, tf.float32), [1])]


@tff.tensorflow.computation(np.str_)
def length(client_id):
  """The work of clients who send the length of what they are called."""
  return tf.strings.length(client_id)


def build_process(create_state, next_fn, client_type=np.str_):
  """A process of any server's state.

  Args:
    create_state: Makes the first state, in TensorFlow.
    next_fn: Maps the state and what clients are called to state and metrics.
    client_type: Type of the latter.
  """
  create_state = tff.tensorflow.computation(create_state)
  initialize = tff.federated_computation(
    lambda: tff.federated_eval(create_state, tff.SERVER)
  )
  next_round = tff.federated_computation(
    next_fn,
    initialize.type_signature.result,
    tff.FederatedType(client_type, tff.CLIENTS),
  )
  return tff.templates.IterativeProcess(initialize, next_round)


def build_private_means() -> tff.templates.IterativeProcess:
  """Clients are the numbers they are called; the server takes a private mean.

  It keeps the sum of the means beside the aggregator's state; a round's metrics
  are its mean and the plain number of clients.
  """
  aggregation = tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
    noise_multiplier=0.0,
    clients_per_round=float(EXPECTED_CLIENTS),
    clip=CLIP_NORM,
  ).create(tff.to_type([(np.float32, [1])]))

  @tff.tensorflow.computation(np.str_)
  def _one(client_id):
    del client_id  # Unused.
    return 1

  @tff.tensorflow.computation(np.float32, tff.to_type([(np.float32, [1])]))
  def _add(total, mean):
    return total + mean[0][0]

  @tff.federated_computation
  def _initialize():
    total = tff.federated_value(np.float32(0.0), tff.SERVER)
    return tff.federated_zip((total, aggregation.initialize()))

  @tff.federated_computation(
    _initialize.type_signature.result, tff.FederatedType(np.str_, tff.CLIENTS)
  )
  def _next(state, client_ids):
    total, aggregator_state = state
    output = aggregation.next(
      aggregator_state, tff.federated_map(_number, client_ids)
    )
    total = tff.federated_map(_add, (total, output.result))
    count = tff.federated_sum(tff.federated_map(_one, client_ids))
    return (
      tff.federated_zip((total, output.state)),
      tff.federated_zip((output.result, count)),
    )

  return tff.templates.IterativeProcess(_initialize, _next)


def build_sums(
  work: tff.Computation, *, sum_fn=tff.federated_sum
) -> tff.templates.IterativeProcess:
  """Counts rounds; a round's metrics are the sum of what clients return."""

  @tff.tensorflow.computation(np.int32)
  def increment(number):
    return number + 1

  def next_round(state, clients):
    total = sum_fn(tff.federated_map(work, clients))
    return tff.federated_map(increment, state), total

  return build_process(lambda: 0, next_round, work.type_signature.parameter)
