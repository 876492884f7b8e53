"""Tests of a client's training as a file, run without TensorFlow."""

import dataclasses
import functools
import json

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema
import tensorflow_federated as tff

from tests.algorithms import builders
from tff_fedemb import errors
from tff_fedemb.algorithms import learning_process
from tff_fedemb.algorithms import local_training
from tff_fedemb.models import backbones
from tff_fedemb.models import heads
from tff_fedemb.phones import client_file
from tff_fedemb.phones import lite_layers
from tff_fedemb.phones import litert
from tff_fedemb.phones import simulated_phones
from tff_fedemb.phones import tensor_files

pytest.importorskip("ai_edge_litert")

_SHAPE, _SEED, _ROUND = (28, 28, 1), 5, 3
_NUM_EXAMPLES = 77


@functools.cache
def _create(name, *, head=None, clip_norm=1e6, trainable="all", **local):
  local = {"learning_rate": 0.05, "batch_size": 8, **local}
  file = client_file.ClientFile(
    create_backbone_fn=functools.partial(
      backbones.create_backbone,
      name,
      _SHAPE,
      embedding_dim=16,
      trainable=trainable,
    ),
    head=head or heads.LinearHead(),
    config=local_training.ClientTraining(rounds=10, **local),
    clip_norm=clip_norm,
    seed=_SEED,
    spec_digest="abc",
  )
  # Keras disowns its layers when a client is built in a graph.
  _ = file.content
  return file


def _create_plain():
  """The file of the tests that any file will do for, made once."""
  return _create("convnet", clip_norm=0.01)


@functools.cache
def _draw_examples(number=_NUM_EXAMPLES):
  """Blurred classes, so that there is something to learn."""
  rng = np.random.default_rng(1)
  labels = rng.integers(0, 7, number)
  coarse = rng.normal(size=[7, 7, 7])[labels]
  images = np.kron(coarse, np.ones([1, 4, 4])) * 40 + 128
  images += rng.normal(0, 10, images.shape)
  images = np.clip(images, 0, 255).astype(np.uint8)[..., np.newaxis]
  # Any numbers are labels.
  return images, labels.astype(np.int64) * 11


def _in_process(file, examples):
  """Computes the update in TensorFlow, and its delta by name, unclipped."""
  train = builders.build_client_update(
    _SHAPE,
    create_backbone_fn=file.create_backbone_fn,
    head=file.head,
    training=file.config,
    seed=file.seed,
    example_type=learning_process.build_example_type(_SHAPE),
  )
  weights = [v.numpy() for v in file.backbone.trainable_variables]
  frozen = [v.numpy() for v in file.backbone.non_trainable_variables]
  # One thread, in a session, as the runtime has it.
  options = tf.compat.v1.ConfigProto(
    intra_op_parallelism_threads=1,
    inter_op_parallelism_threads=1,
    use_per_session_threads=True,
  )
  with (
    tf.Graph().as_default(),
    tf.compat.v1.Session(config=options) as session,
  ):
    dataset = builders.create_dataset(*examples).batch(16)
    update = train(weights, dataset, _ROUND, frozen)
    session.run(tf.compat.v1.global_variables_initializer())
    update = session.run(update)
  return update, dict(zip(file.delta_shapes, update.delta, strict=True))


def _on_phone(file, examples, folder):
  """Returns the delta of a process without TensorFlow, and its facts."""
  dataset = builders.create_dataset(*examples).batch(16)
  drawn = tf.function(
    lambda: simulated_phones.draw(file, dataset, tf.constant(_ROUND))
  )()
  inputs = {name: value.numpy() for name, value in drawn.inputs.items()}
  weights = tff.learning.models.ModelWeights.from_model(file.backbone)
  contents = {
    "program": file.content,
    "model": tensor_files.pack(file.name_inputs(weights, _ROUND), {"a": "b"}),
    "client": tensor_files.pack(inputs, {}),
  }
  for name, content in contents.items():
    (folder / name).write_bytes(content)
  litert._run_program([folder / x for x in (*contents, "delta", "stays")])
  delta, words = tensor_files.unpack((folder / "delta").read_bytes())
  assert words == {"a": "b"}
  facts = json.loads((folder / "stays").read_text())
  assert facts["without_tensorflow"]
  return delta, facts, drawn


def _difference(found, expected):
  """The largest difference, relative to the largest entry of all."""
  assert found.keys() == expected.keys()
  pairs = [(np.ravel(found[x]), np.ravel(expected[x])) for x in expected]
  left, right = map(np.concatenate, zip(*pairs, strict=True))
  return np.abs(left - right).max() / np.abs(right).max()


@pytest.mark.parametrize(
  ("head", "local"),
  [
    # Twenty steps.
    (heads.LinearHead(), {"epochs": 2}),
    pytest.param(
      heads.CosineHead(scale=4.0),
      {"head_warmup_steps": 12, "freeze_head": True, "schedule": "cosine"},
      marks=pytest.mark.slow,
    ),
    # Nothing else than what is trained is sent.
    (
      heads.ClassCodesHead(scale=5.0),
      {"head_warmup_steps": 2, "trainable": "embedding"},
    ),
  ],
  ids=["both", "frozen", "class_codes"],
)
def test_delta_is_that_of_in_process(head, local, tmp_path):
  # Where two parts of a pool are equal but for rounding, either may be taken
  # as the largest, and all later steps differ: in about one run of eight.
  differences = []
  while len(differences) < 3 and min(differences, default=1) > 1e-5:
    tf.keras.utils.set_random_seed(1 + len(differences))
    _create.cache_clear()
    file = _create("convnet_tanh", head=head, **local)
    update, expected = _in_process(file, _draw_examples())
    found, facts, drawn = _on_phone(file, _draw_examples(), tmp_path)
    differences.append(_difference(found, expected))
  assert min(differences) <= 1e-5
  assert max(differences) <= 0.05
  assert facts["num_correct"] == update.num_correct
  assert facts["loss_sum"] == pytest.approx(update.loss_sum, rel=1e-5)
  assert drawn.num_classes == update.num_classes == 7
  assert np.sum(drawn.inputs["order"] >= 0) == update.num_examples


def test_size_memory_and_clipping(tmp_path):
  file = _create_plain()
  assert len(file.content) <= 200_000
  found, facts, _ = _on_phone(file, _draw_examples(), tmp_path)
  flat = np.concatenate(list(map(np.ravel, found.values())))
  norm = np.linalg.norm(flat.astype(np.float64))
  assert 0.01 * (1 - 2e-6) < norm <= 0.01
  assert 0 < facts["peak_memory_bytes"] <= 100e6


def test_all_operations_are_built_in_and_no_weights_are_inside():
  file = _create_plain()
  model = schema.Model.GetRootAs(file.content)
  codes = list(map(model.OperatorCodes, range(model.OperatorCodesLength())))
  assert len(codes) > 20
  assert all(code.CustomCode() is None for code in codes)
  operators = schema.BuiltinOperator
  assert operators.CUSTOM not in {code.BuiltinCode() for code in codes}
  interpreter = tf.lite.Interpreter(model_content=file.content)
  assert interpreter.get_signature_list().keys() == {"train", "embed"}
  # No tensor of it has as many numbers as the smallest kernel.
  sizes = [model.Buffers(i).DataLength() for i in range(model.BuffersLength())]
  assert max(sizes) < 5 * 5 * 16 * 4


def test_embeds_as_keras():
  file = _create_plain()
  interpreter = tf.lite.Interpreter(model_content=file.content)
  embed = interpreter.get_signature_runner("embed")
  images, _ = _draw_examples()
  names = lite_layers.names_of(file.backbone, file.backbone.weights)
  weights = dict(zip(names, file.backbone.get_weights(), strict=True))
  found = embed(images=images, **weights)["embeddings"]
  backbone = file.create_backbone_fn()
  backbone.set_weights(list(weights.values()))
  expected = backbone(images.astype(np.float32))
  np.testing.assert_allclose(
    found, tf.math.l2_normalize(expected, axis=1), atol=1e-5
  )


def test_tells_what_may_be_sent():
  described = json.loads(json.dumps(_create_plain().describe()))
  assert described["image_shape"] == [28, 28, 1]
  assert described["may_be_sent"]["embedding_kernel"] == [576, 16]
  assert not {"head", "loss_sum"} & described["may_be_sent"].keys()
  assert "order, warm_up, head" in described["must_stay"]


@pytest.mark.parametrize(
  ("head", "steps"),
  [
    (heads.LinearHead(), 12),
    # Nothing of it is trained, and so there is nothing to warm up.
    (heads.ClassCodesHead(scale=5.0), 0),
  ],
)
def test_tells_how_many_steps_train_the_head_alone(head, steps):
  plain = _create_plain()
  config = dataclasses.replace(plain.config, head_warmup_steps=12)
  file = dataclasses.replace(plain, head=head, config=config)
  assert file.describe()["head_warmup_steps"] == steps


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    ({"head": heads.ArcFaceHead()}, "head must be linear.*found ArcFaceHead"),
    ({"head": heads.CosineHead(learned_scale=True)}, "of a fixed scale"),
    ({"optimizer": "adam"}, "optimizer must be sgd in a file"),
  ],
)
def test_refuses_what_phones_do_not_do(fields, message):
  with pytest.raises(errors.FieldError, match=message):
    _create("convnet_tanh", **fields)
