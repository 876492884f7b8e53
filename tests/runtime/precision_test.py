"""Tests of the precisions that clients may compute in."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.algorithms import builders
from tff_fedemb import errors
from tff_fedemb import runtime as runtimes
from tff_fedemb.algorithms import local_training
from tff_fedemb.models import pooled
from tff_fedemb.runtime import precision

_SHAPE = (12, 12, 1)


@pytest.mark.parametrize(
  ("features", "expected"),
  [
    ("flags\t\t: fpu amx_bf16 amx_tile\n", True),
    ("flags\t\t: fpu avx512_bf16\n", True),
    ("Features\t: fp asimd bf16\n", True),
    ("flags\t\t: fpu\n", False),
    # Where Linux does not tell.
    (None, False),
  ],
)
def test_refuses_what_the_processor_lacks(
  tmp_path, monkeypatch, features, expected
):
  path = tmp_path / "cpuinfo"
  if features is not None:
    path.write_text("processor\t: 0\n" + features)
  monkeypatch.setattr(precision, "_CPU_INFO", path)
  assert precision.has_bfloat16() == expected
  precision.check_precision("float32")
  if not expected:
    with pytest.raises(
      errors.FieldError,
      match="compute_precision must be float32 on a processor without amx_bf16",
    ):
      precision.check_precision("mixed_bfloat16")


def _build_process(clip_norm):
  return builders.compose(
    lambda client_id: builders.create_dataset(
      *builders.create_examples(client_id, _SHAPE, 64, 4)
    ).batch(16),
    builders.build_process(
      _SHAPE,
      create_backbone_fn=functools.partial(
        pooled.create_lenet, _SHAPE, embedding_dim=16
      ),
      aggregator=builders.create_aggregator(
        "clip_only", clients_per_round=1, clip_norm=clip_norm
      ),
      server_optimizer=tff.learning.optimizers.build_sgdm(1.0),
      config=local_training.LocalTraining(batch_size=16, optimizer="sgdm"),
    ),
  )


def _run_round(process, compute_precision):
  """Returns the server's update by one client from one fixed model."""
  with runtimes.create_runtime(compute_precision=compute_precision) as started:
    state = started.structured_state(started.initialize(process))
    before = [
      np.random.default_rng(0).normal(0.0, 0.05, w.shape).astype(w.dtype)
      for w in state.global_model_weights.trainable
    ]
    weights = tff.learning.models.ModelWeights(tuple(before), ())
    loaded = started.load_state(state._replace(global_model_weights=weights))
    after, _ = started.next(loaded, ["1"])
    trained = started.structured_state(after).global_model_weights.trainable
    return np.concatenate(
      [np.ravel(b - a) for b, a in zip(before, trained, strict=True)]
    )


@pytest.mark.slow
@pytest.mark.skipif(
  not precision.has_bfloat16(),
  reason="needs a processor with bfloat16",
)
def test_mixed_bfloat16_rounds_products_and_nothing_after():
  process = _build_process(1e6)
  exact = _run_round(process, "float32")
  rounded = _run_round(process, "mixed_bfloat16")
  # bfloat16 has 8 bits: a relative error of up to 2^-9 for each factor. Weights
  # that were rounded themselves would be off by as much as the update is long.
  distance = np.linalg.norm(rounded - exact) / np.linalg.norm(exact)
  assert 1e-4 < distance < 0.05
  # Clipping holds what it promises to the last bits of float32.
  clip_norm = 0.5 * float(np.linalg.norm(rounded))
  clipped = _run_round(_build_process(clip_norm), "mixed_bfloat16")
  np.testing.assert_allclose(
    np.linalg.norm(clipped.astype(np.float64)), clip_norm, rtol=1e-4
  )


def test_depthwise_convolutions_are_refused_in_bfloat16():
  layers = tf.keras.layers
  model = tf.keras.Sequential([layers.DepthwiseConv2D(3, name="by_channel")])
  precision.check_backbone(model, "float32")
  with pytest.raises(
    errors.FieldError,
    match=r"compute_precision must be float32 .* such as by_channel, .* 1.35",
  ):
    precision.check_backbone(model, "mixed_bfloat16")
