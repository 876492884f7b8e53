"""Tests of clients that hold their images encoded."""

import contextlib
import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.algorithms import builders
from tff_fedemb import runtime as runtimes
from tff_fedemb.algorithms import composition
from tff_fedemb.algorithms import local_training
from tff_fedemb.data import encoded_images
from tff_fedemb.runtime import client_error

_SHAPE = (6, 5, 3)
_NUM_EXAMPLES = 9


def _data_of(client_id, *, encoded):
  """Client "broken" has something else than an image in rows 2 and 5."""
  labels = tf.range(_NUM_EXAMPLES, dtype=tf.int64) % 3
  broken = tf.equal(client_id, "broken")
  damaged = tf.reduce_any(
    tf.equal(tf.range(_NUM_EXAMPLES)[:, tf.newaxis], [2, 5]), axis=1
  )
  seed = tf.stack([tf.strings.to_hash_bucket_fast(client_id, 1000), 7])
  images = builders.draw_images(seed, [_NUM_EXAMPLES, *_SHAPE])
  if encoded:
    images = tf.map_fn(
      tf.io.encode_png, images, fn_output_signature=tf.TensorSpec([], tf.string)
    )
    images = tf.where(broken & damaged, "no image", images)
  else:
    keep = tf.logical_not(broken & damaged)
    images = tf.boolean_mask(images, keep)
    labels = tf.boolean_mask(labels, keep)
  return builders.create_dataset(images, labels).batch(4)


def _options(encoded, *, skips=False):
  return {
    "example_type": (
      composition.build_example_type((), tf.string)
      if encoded
      else composition.build_example_type(_SHAPE)
    ),
    "config": local_training.LocalTraining(
      batch_size=4,
      epochs=2,
      decode_images=encoded_images.build_decoder(_SHAPE) if encoded else None,
      skip_unreadable=skips,
    ),
    "seed": 3,
  }


def _build_process(encoded, **options):
  return builders.compose(
    functools.partial(_data_of, encoded=encoded),
    builders.build_process(
      _SHAPE,
      aggregator=builders.create_aggregator("none", clients_per_round=2),
      **_options(encoded, **options),
    ),
  )


@pytest.fixture(name="run", scope="module")
def _run():
  """Runs rounds of a process, which is compiled once for all tests."""
  with contextlib.ExitStack() as stack:

    @functools.cache
    def start(runtime, encoded, **options):
      executor = stack.enter_context(runtimes.create_runtime(runtime))
      return executor, executor.initialize(_build_process(encoded, **options))

    def run(client_ids, encoded, *, runtime="in_process", rounds=2, **options):
      executor, state = start(runtime, encoded, **options)
      for _ in range(rounds):
        state, metrics = executor.next(state, client_ids)
      weights = executor.structured_state(state).global_model_weights
      return [np.asarray(w) for w in weights.trainable], metrics["client_work"]

    yield run


def test_a_client_trains_on_encoded_images_as_on_images():
  weights = builders.create_backbone(_SHAPE).get_weights()
  updates = []
  for encoded in (False, True):
    train = builders.build_client_update(_SHAPE, **_options(encoded))
    dataset = _data_of(tf.constant("a"), encoded=encoded)
    updates.append(train(weights, dataset, 0))
  for expected, found in zip(*(each.delta for each in updates), strict=True):
    assert np.abs(expected).max() > 1e-5
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
  assert updates[1].num_skipped_examples == 0


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["in_process", "tff"])
def test_unreadable_images_are_left_out_and_counted(run, runtime):
  expected, _ = run(["a", "broken"], False)
  weights, metrics = run(["a", "broken"], True, skips=True, runtime=runtime)
  for found, wanted in zip(weights, expected, strict=True):
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
  assert metrics["num_skipped_examples"] == 2
  assert metrics["num_examples"] == 2 * (2 * _NUM_EXAMPLES - 2)


@pytest.mark.slow
def test_unreadable_images_fail_their_client_unless_told_otherwise(run):
  with pytest.raises(client_error.ClientError, match="client 'broken' failed"):
    run(["a", "broken"], True, rounds=1)
