"""Tests of the backbones; the large ones against `tf.keras.applications`."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tff_fedemb import errors
from tff_fedemb.models import backbones

_SHAPE = (32, 32, 3)
# Those for small grey images.
_SMALL = {
  "conv4",
  "conv4_48",
  "conv4_wide",
  "convnet",
  "convnet_tanh",
  "lenet",
  "strided",
}
# Those for examples that are no images, and the shape of one.
_OTHERS = {"conv1d": (16, 2), "dense": (64,)}
_CONVOLUTIONS = (tf.keras.layers.Conv2D, tf.keras.layers.DepthwiseConv2D)


# Trainable weights by choice, as `TRAINABLE`; `None` for one without sense.
_NUM_TRAINABLE = {
  # Convolutions of 5, 5 and 3 steps; two hidden layers of 128.
  "conv1d": (352 + 10_304 + 12_352 + 8_320, None, None, 8_320),
  "conv4": (250_912, 177_184, 66_304, 65_664),
  # Whatever the size of the image: 9 places of 128 channels are embedded.
  "conv4_48": (332_832, 259_104, 148_224, 147_584),
  "conv4_wide": (487_040, 321_152, 99_392, 98_432),
  "convnet": (97_408, None, None, 73_856),
  "convnet_tanh": (97_408, None, None, 73_856),
  "dense": (8_320 + 16_512 + 16_512, None, None, 16_512),
  "lenet": (453_632, None, None, 401_536),
  "mobilenet_v2": (2_387_840, 1_876_016, 198_080, 163_968),
  "mobilenet_v2_small": (161_760, 146_112, 37_440, 32_896),
  "resnet50": (23_796_864, 15_492_736, 315_392, 262_272),
  "resnet_small": (574_464, 455_744, 70_496, 65_664),
}


@functools.cache
def _create(name):
  """The backbone, left fully trainable by whoever uses it."""
  tf.keras.utils.set_random_seed(3)
  shape = _OTHERS.get(name, (28, 28, 1) if name in _SMALL else _SHAPE)
  return backbones.create_backbone(name, shape)


def _count(variables):
  return sum(int(np.prod(variable.shape)) for variable in variables)


@pytest.mark.parametrize(
  ("name", "shape", "num_parameters"),
  [
    ("conv1d", (3, 1), None),
    ("convnet", (9, 11, 3), None),
    ("dense", (1,), None),
    ("lenet", (5, 5, 1), None),
    # The first kernel is 3 x 3 to 16 channels.
    ("mobilenet_v2_small", (61, 28, 1), 161_760 - 2 * 3 * 3 * 16),
    # The first kernel is 7 x 7 to 16 channels.
    ("resnet_small", (61, 28, 1), 574_464 - 2 * 7 * 7 * 16),
  ],
)
def test_embeds_images_one_by_one(name, shape, num_parameters):
  """No image has a part in another's embedding; every weight has a gradient."""
  backbone = backbones.create_backbone(name, shape)
  assert num_parameters in (None, backbone.count_params())
  assert not backbone.non_trainable_variables
  images = np.random.default_rng(0).uniform(0, 255, (3, *shape))
  images = tf.constant(images, tf.float32)
  with tf.GradientTape() as tape:
    together = backbone(images, training=True)
    # A projection: embeddings of one norm would have no gradient.
    loss = tf.reduce_sum(
      together * tf.random.stateless_normal([3, 128], (1, 2))
    )
  for variable, gradient in zip(
    backbone.trainable_variables,
    tape.gradient(loss, backbone.trainable_variables),
    strict=True,
  ):
    assert np.all(np.isfinite(gradient)), variable.name
    assert np.any(gradient != 0.0), variable.name
  np.testing.assert_allclose(together[1:2], backbone(images[1:2]), atol=1e-4)
  # Different images, different embeddings, at the smallest maps too.
  assert np.abs(together[0] - together[1]).max() > 1e-3
  if name == "resnet_small" and shape[2] == 1:
    # Grey pixels are less the mean of the mean colour.
    scaled = backbone.get_layer(index=1)(np.array([114.8], np.float32))
    np.testing.assert_allclose(scaled, [0.0], atol=0.01)


@pytest.mark.parametrize(
  "name",
  [
    pytest.param(
      name, marks=[pytest.mark.slow] * (name in ("resnet50", "mobilenet_v2"))
    )
    for name in sorted(_NUM_TRAINABLE)
  ],
)
def test_numbers_of_private_parameters_are_the_documented_ones(name):
  backbone, middle = _create(name), backbones.BACKBONES[name].middle
  of_all = _NUM_TRAINABLE[name][0]
  names = [variable.name for variable in backbone.weights]
  choices = zip(backbones.TRAINABLE, _NUM_TRAINABLE[name], strict=True)
  # Back to all at the end: a choice leaves no trace of the one before.
  for trainable, expected in [*choices, ("all", of_all)]:
    if expected is None:
      continue
    backbones.freeze(backbone, trainable, middle=middle)
    assert _count(backbone.trainable_variables) == expected
    assert _count(backbone.non_trainable_variables) == of_all - expected
    # The order of the weights is the same, whatever is frozen.
    assert [variable.name for variable in backbone.weights] == names
    for layer in backbone.layers:
      # The last convolution of a block, frozen at 1/8 and 1/16 of the side.
      if trainable == "outer" and layer.name.endswith(("_project", "_3_conv")):
        is_middle = layer.output_shape[1] in (_SHAPE[0] // 8, _SHAPE[0] // 16)
        assert layer.trainable == (not is_middle), layer.name


@pytest.mark.parametrize(
  ("name", "alike"), [("mobilenet_v2_small", "norm"), ("resnet_small", "outer")]
)
def test_published_freezing(name, alike):
  """As `trainable_conv=False` in the authors' two models."""
  found = backbones.create_backbone(name, _SHAPE, trainable="published")
  for layer in found.layers:
    is_middle = name != "resnet_small" or layer.name[:5] in ("conv3", "conv4")
    is_frozen = is_middle and isinstance(layer, _CONVOLUTIONS)
    assert not layer.weights or layer.trainable != is_frozen, layer.name
  count = _NUM_TRAINABLE[name][backbones.TRAINABLE.index(alike)]
  assert _count(found.trainable_variables) == count


_CONVOLUTIONAL = sorted({*backbones.BACKBONES} - _SMALL - {*_OTHERS})


@pytest.mark.parametrize(
  ("names", "shape", "options", "message"),
  [
    (["alexnet"], (28, 28, 1), {}, "backbone must be one of"),
    (["lenet"], (3, 28, 1), {}, "image_shape must be"),
    (
      sorted(backbones.BACKBONES),
      (28, 28, 1),
      {"embedding_dim": 0},
      "embedding_dim must be an integer of at least 1, found 0",
    ),
    (_CONVOLUTIONAL, (27, 28, 3), {}, r"image_shape .* found \(27, 28, 3\)"),
    (_CONVOLUTIONAL, (28, 225, 3), {}, r"image_shape .* found \(28, 225, 3\)"),
    (_CONVOLUTIONAL, (28, 28, 2), {}, r"image_shape .* found \(28, 28, 2\)"),
    (["dense", "lenet"], (28, 28), {}, r"image_shape must be .* \(28, 28\)"),
    (
      ["lenet"],
      _SHAPE,
      {"trainable": "published"},
      "^trainable must be one of all, embedding for backbone lenet, found"
      " 'published'",
    ),
    (["lenet"], _SHAPE, {"trainable": "outer"}, "one of all, embedding"),
  ],
)
def test_mistakes_are_named(names, shape, options, message):
  for name in names:
    with pytest.raises(errors.FieldError, match=message):
      backbones.create_backbone(name, shape, **options)


def create_of_ones_own(image_shape, *, embedding_dim):
  return backbones.create_backbone(
    "convnet", image_shape, embedding_dim=embedding_dim
  )


def create_without_name(image_shape, *, embedding_dim):
  layers = [tf.keras.Input(image_shape), tf.keras.layers.Flatten()]
  layers.append(tf.keras.layers.Dense(embedding_dim, name="last"))
  return tf.keras.Sequential(layers)


def create_nothing(image_shape, *, embedding_dim):
  del image_shape, embedding_dim


def create_of_another_size(image_shape, *, embedding_dim):
  return create_of_ones_own(image_shape, embedding_dim=embedding_dim + 1)


@pytest.mark.parametrize(
  ("function", "found"),
  [
    (create_nothing, "NoneType"),
    (create_of_another_size, r"output \(None, 129\)"),
  ],
)
def test_a_function_must_return_a_backbone(function, found):
  name = f"{__name__}:{function.__name__}"
  config = backbones.BackboneConfig(backbone=name)
  message = rf"embeddings \(None, 128\), found {found} from"
  with pytest.raises(errors.FieldError, match=message):
    config.create((12, 12, 1), default="lenet")


def test_a_backbone_of_ones_own():
  config = backbones.BackboneConfig(backbone=f"{__name__}:create_of_ones_own")
  assert config.create((12, 12, 1), default="lenet").output_shape == (None, 128)
  with pytest.raises(errors.DataError, match="nowhere:create must be a module"):
    backbones.BackboneConfig(backbone="nowhere:create")
  config = backbones.BackboneConfig(backbone=f"{__name__}:create_without_name")
  with pytest.raises(
    errors.FieldError, match="a last layer named 'embedding', found 'last'"
  ):
    config.create((12, 12, 1), default="lenet")


def create_with_batch_normalization(image_shape, *, embedding_dim):
  layers = tf.keras.layers
  inner = tf.keras.Sequential([layers.BatchNormalization(name="inside")])
  return tf.keras.Sequential(
    [
      tf.keras.Input(image_shape),
      inner,
      layers.Flatten(),
      layers.Dense(embedding_dim, name="embedding"),
    ]
  )


def test_statistics_that_no_client_sends_are_refused():
  name = f"{__name__}:create_with_batch_normalization"
  message = "batch normalisation, whose .*, found layer inside of"
  with pytest.raises(errors.FieldError, match=message):
    backbones.create_backbone(name, (12, 12, 1))
  # They stay as they are, in training too.
  backbones.create_backbone(name, (12, 12, 1), trainable="embedding")


def create_of_no_size(image_shape):
  del image_shape


@pytest.mark.parametrize(
  ("name", "found"),
  [
    ("create_of_no_size", "got an unexpected keyword argument 'embedding_dim'"),
    ("_SHAPE", "is not a callable object"),
  ],
)
def test_a_function_must_take_what_it_is_given(name, found):
  message = f"{name} must be a function of an image's shape and .* {found}"
  with pytest.raises(errors.DataError, match=message):
    backbones.BackboneConfig(backbone=f"{__name__}:{name}")


def test_only_networks_with_batch_normalisation_can_keep_its_statistics():
  with pytest.raises(errors.FieldError, match="norm must be group for"):
    backbones.create_backbone("convnet", (28, 28, 1), norm="frozen")
  backbone = backbones.create_backbone(
    "mobilenet_v2_small", (28, 28, 1), norm="frozen", trainable="norm"
  )
  kept = {v.name.rpartition("/")[2] for v in backbone.non_trainable_variables}
  assert {"moving_mean:0", "moving_variance:0"} < kept
  trained = {v.name.rpartition("/")[2] for v in backbone.trainable_variables}
  assert trained == {"gamma:0", "beta:0", "kernel:0", "bias:0"}
