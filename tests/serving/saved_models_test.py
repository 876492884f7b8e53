"""Tests of loading models of runs and of others, and of what is refused."""

import os
import pickle

from etils import epy
import numpy as np
import pytest
import tensorflow as tf

from tff_fedemb import errors
from tff_fedemb.serving import saved_models

# Importing it takes two seconds, which not every process of the tests needs.
with epy.lazy_imports():
  import keras

_IMAGES = np.random.default_rng(0).integers(0, 256, (3, 4, 4, 3), np.uint8)


def _create(library):
  layers = library.layers
  inputs = layers.Input((None, None, 3))
  x = layers.Conv2D(5, 3, name="maps")(inputs)
  x = layers.GlobalAveragePooling2D()(layers.BatchNormalization()(x))
  x = layers.Dropout(0.5)(x)
  return library.Model(inputs, layers.Dense(2, name="last")(x))


@pytest.fixture(name="keras_model", scope="module")
def _keras_model():
  return _create(tf.keras)


def _save_keras_3(model, path):
  same = _create(keras)
  same.set_weights(model.get_weights())
  same.save(path)


def _save_sequential_3(model, path):
  layers = keras.layers
  same = keras.Sequential(
    [
      layers.Input((None, None, 3)),
      layers.Conv2D(5, 3, name="maps"),
      layers.BatchNormalization(),
      layers.GlobalAveragePooling2D(),
      layers.Dropout(0.5),
      layers.Dense(2, name="last"),
    ]
  )
  same.set_weights(model.get_weights())
  same.save(path)


class _Callable(tf.Module):
  """A module saved without signatures: it has no input signature."""

  def __init__(self, model):
    super().__init__()
    self._model = model

  @tf.function
  def __call__(self, images, training=False):
    return self._model(images, training=training)


def _save_callable(model, path):
  module = _Callable(model)
  # The first two are no function of any batch, or one of training.
  module(tf.zeros([2, 4, 4, 3]))
  for training in (True, False):
    spec = tf.TensorSpec([None, None, None, 3])
    module.__call__.get_concrete_function(spec, training=training)
  tf.saved_model.save(module, path)


_WRITERS = {
  "saved": lambda model, path: model.save(path, save_format="tf"),
  "exported": lambda model, path: model.export(path),
  "model.keras": lambda model, path: model.save(path),
  "model.h5": lambda model, path: model.save(path),
  "keras_3.keras": _save_keras_3,
  "keras_3.h5": _save_keras_3,
  "sequential_3.keras": _save_sequential_3,
  "sequential_3.h5": _save_sequential_3,
  "callable": _save_callable,
}


@pytest.mark.filterwarnings("ignore:You are saving your model")
@pytest.mark.parametrize("name", _WRITERS)
def test_models_of_others(keras_model, tmp_path, name):
  path = os.fspath(tmp_path / name)
  _WRITERS[name](keras_model, path)
  model = saved_models.load(path, image_size=4)
  assert (model.image_shape, model.card) == ((4, 4, 3), None)
  expected = keras_model(tf.constant(_IMAGES, tf.float32)).numpy()
  np.testing.assert_allclose(model(_IMAGES), expected, rtol=1e-4, atol=1e-3)
  again = pickle.loads(pickle.dumps(model))
  np.testing.assert_array_equal(again(_IMAGES), model(_IMAGES))
  options = {"layer": "maps", "image_size": 4, "preprocess": "unit"}
  if name in ("exported", "callable"):
    with pytest.raises(errors.FieldError, match="layer must be an output of"):
      saved_models.load(path, **options)
    return
  maps = keras_model.get_layer("maps")(_IMAGES / np.float32(255)).numpy()
  found = saved_models.load(path, **options)(_IMAGES)
  np.testing.assert_allclose(found, maps.mean(axis=(1, 2)), atol=1e-5)
  with pytest.raises(errors.FieldError, match=r"one of .*maps.*found 'map'"):
    saved_models.load(path, layer="map", image_size=4)
  with pytest.raises(errors.FieldError, match="image_size must suit the laye"):
    saved_models.load(path, image_size=2)


@pytest.mark.parametrize("preprocess", saved_models.PREPROCESS)
def test_modes_of_colours_are_refused_for_grey_images(tmp_path, preprocess):
  path = os.fspath(tmp_path / "grey")
  _save(path, x=([None, 4, 12, 1], tf.uint8))
  options = {"layer": "a", "preprocess": preprocess}
  model = saved_models.load(path, **options)
  images = np.zeros([1, 4, 12, 1], np.uint8)
  if preprocess in ("unit", "tf"):
    assert model(images).shape == (1, 48)
  else:
    with pytest.raises(errors.FieldError, match="preprocess must be unit or"):
      model(images)


@pytest.mark.parametrize("library", [tf.keras, keras], ids=["keras_2", "3"])
def test_code_of_a_keras_file_is_not_run(library, tmp_path):
  layers = [library.layers.Input((4, 4, 3)), library.layers.Flatten()]
  layers.append(library.layers.Lambda(lambda x: 2 * x))
  for path in (tmp_path / "m.h5", tmp_path / "m.keras"):
    library.Sequential(layers).save(path)
    with pytest.raises(errors.FieldError, match=r"Lambda`? layer"):
      saved_models.load(os.fspath(path))


def _save(path, **specs):
  """Saves a function of all specs with outputs "a", flat, and "b", a number."""

  @tf.function(
    input_signature=[tf.TensorSpec(*s, name=n) for n, s in specs.items()]
  )
  def serve(*inputs):
    size = tf.shape(inputs[0])[0]
    flat = tf.reshape(tf.cast(inputs[0], tf.float32), [size, -1])
    return {"a": tf.ensure_shape(flat, [None, 48]), "b": tf.reduce_sum(flat)}

  module = tf.Module()
  module.serve = serve
  tf.saved_model.save(module, path, {"other": serve})


_SPEC = ([None, 4, 4, 3], tf.uint8)


def test_a_layer_names_an_output(tmp_path):
  path = os.fspath(tmp_path / "model")
  _save(path, x=_SPEC)
  found = saved_models.load(path, layer="a")
  np.testing.assert_array_equal(found(_IMAGES), _IMAGES.reshape(3, -1))
  for layer in (None, "b"):
    with pytest.raises(
      errors.FieldError, match=r"layer must be an output .* a float32 "
    ):
      saved_models.load(path, layer=layer)
  with pytest.raises(errors.FieldError, match=r"one of a, b, found 'c'"):
    saved_models.load(path, layer="c")
  with pytest.raises(errors.FieldError, match="size of images open if, and"):
    saved_models.load(path, layer="a", image_size=8)


@pytest.mark.parametrize(
  "specs",
  [
    {"x": _SPEC, "y": _SPEC},
    {"x": (None, tf.float32)},
    {"x": ([8, 4, 4, 3], tf.float32)},
    {"x": ([None, 3, 4, 4], tf.float32)},
    {"x": ([None, 4, 4, 3], tf.bool)},
  ],
)
def test_what_is_no_function_of_images(tmp_path, specs):
  path = os.fspath(tmp_path / "model")
  _save(path, **specs)
  with pytest.raises(errors.FieldError) as error:
    saved_models.load(path)
  message = str(error.value)
  assert message.startswith("saved_model must have one input, images [None, he")
  shape, dtype = specs["x"]
  assert f"from x {dtype.name} {tf.TensorShape(shape)}" in message


def test_signatures_must_leave_no_choice(tmp_path):
  module = tf.Module()
  tf.saved_model.save(module, os.fspath(tmp_path / "none"))
  module.f = tf.function(lambda x: x, input_signature=[tf.TensorSpec([None])])
  tf.saved_model.save(
    module, os.fspath(tmp_path / "two"), {"a": module.f, "b": module.f}
  )
  for name, found in {"none": r"\[\]", "two": r"\['a', 'b'\]"}.items():
    with pytest.raises(errors.FieldError, match=f"with signatures {found}"):
      saved_models.load(os.fspath(tmp_path / name))


def test_what_is_no_saved_model(keras_model, tmp_path):
  (tmp_path / "file").write_bytes(b"no model")
  # Layers with weights, which are gone.
  keras_model.export(tmp_path / "weightless")
  (tmp_path / "weightless/variables/variables.data-00000-of-00001").unlink()
  keras_model.export(tmp_path / "half")
  path = tmp_path / "half/saved_model.pb"
  path.write_bytes(path.read_bytes()[:1000])
  must = "saved_model must be the directory"
  for name in ("missing", "file", "weightless", "half"):
    with pytest.raises(errors.FieldError, match=must):
      saved_models.load(os.fspath(tmp_path / name))
