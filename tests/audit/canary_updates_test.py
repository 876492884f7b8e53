"""Canaries in a learning process: clients who send directions."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.algorithms import builders
from tff_fedemb import runtime
from tff_fedemb.algorithms import fedavg
from tff_fedemb.algorithms import fedemb
from tff_fedemb.algorithms import local_training
from tff_fedemb.audit import canary_updates
from tff_fedemb.mechanisms import gaussian
from tff_fedemb.mechanisms import tree_strategy

_CLIP_NORM = 0.5
_SHAPE = (4, 4, 1)
_CANARIES = canary_updates.CanaryUpdates(3, _CLIP_NORM, seed=7)


def _create_dataset(client_id):
  seed = tf.stack([tf.strings.to_hash_bucket_fast(client_id, 1000), 1])
  labels = tf.cast(tf.range(6) % 3, tf.int64)
  return builders.create_dataset(
    builders.draw_images(seed, [6, *_SHAPE]), labels
  ).batch(4)


def _build_process(algorithm, **options):
  mechanism = gaussian.GaussianConfig(clip_norm=_CLIP_NORM).create(
    clients_per_round=1
  )
  return builders.build_process(
    _SHAPE,
    algorithm=algorithm,
    aggregator=mechanism.factory,
    server_optimizer=tff.learning.optimizers.build_sgdm(1.0),
    config=local_training.LocalTraining(),
    num_classes=3,
    **options,
  )


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [fedemb.FedEmb, fedavg.FedAvg])
def test_canaries_send_their_clipped_direction_and_others_train(algorithm):
  plain = builders.compose(_create_dataset, _build_process(algorithm))
  audited = builders.compose(
    _CANARIES.wrap_dataset(_create_dataset, "user"),
    _build_process(
      algorithm, wrap_client_update_fn=_CANARIES.wrap_client_update
    ),
  )

  def weights(state):
    structured = executor.structured_state(state)
    return structured.global_model_weights.trainable

  with runtime.create_runtime(concurrent_clients=1) as executor:
    state, _ = executor.next(executor.initialize(plain), ["user"])
    of_user = canary_updates.flatten(weights(state))
    state = executor.initialize(audited)
    scores = canary_updates.UpdateScores(_CANARIES, weights(state))
    for client in ("user", _CANARIES.client_id(2), _CANARIES.client_id(0)):
      state, metrics = executor.next(state, [client])
      scores.add(weights(state))
      if client == "user":
        np.testing.assert_allclose(
          canary_updates.flatten(weights(state)), of_user, atol=1e-6
        )
      else:
        assert metrics["client_work"]["num_examples"] == 0
  projections = np.array(scores.projections)
  assert projections[1, 2] == pytest.approx(_CLIP_NORM, rel=1e-4)
  assert projections[2, 0] == pytest.approx(_CLIP_NORM, rel=1e-4)
  assert np.abs(projections[1:, 1]).max() < _CLIP_NORM * 0.9
  np.testing.assert_allclose(scores.largest_cosine()[[0, 2]], 1.0, rtol=1e-4)
  assert np.argmin(scores.final_cosine()) == 1


def test_momentum_is_taken_out_of_movements():
  shape = [(200,)]
  vectors = _CANARIES.directions(shape)
  scores = canary_updates.UpdateScores(
    _CANARIES, [np.zeros(200, np.float32)], momentum=0.5
  )
  # Two rounds along canaries 0 and 1, by a server with momentum 0.5.
  first = vectors[0]
  scores.add([-first])
  scores.add([-first - (0.5 * first + vectors[1])])
  gram = vectors @ vectors.T
  np.testing.assert_allclose(np.array(scores.projections), gram[:2], atol=1e-5)


def test_the_matched_statistic_has_the_distance_that_is_accounted_for():
  # A user is in rounds 1 and 3 of 4 under tree aggregation. The sensitivity of
  # C x is worked out from the nodes above these rounds: 2 leaves, 2 pairs with
  # one of them each, and the root with both.
  rounds, z = 4, 3.0
  noise = tree_strategy.TreeStrategy().round_noise_matrix(rounds)
  rng = np.random.default_rng(2)
  takes_part = np.zeros([rounds, 4_000], bool)
  takes_part[[0, 2]] = True
  released = z * noise @ rng.normal(size=(noise.shape[1], 4_000))
  released[:, :2_000] += takes_part[:, :2_000]
  scores = canary_updates.match(released, takes_part, noise) / z
  distance = scores[:2_000].mean() - scores[2_000:].mean()
  assert distance == pytest.approx(np.sqrt(2 + 2 + 4) / z, abs=0.15)
  assert scores.std() < 1.15
  # A canary in no round scores nothing.
  nowhere = np.zeros([2, 1], bool)
  assert canary_updates.match(np.ones([2, 1]), nowhere, np.eye(2)) == [0.0]
