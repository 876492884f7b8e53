"""Models of `tf.keras.applications` by name, for features of images."""

from __future__ import annotations

import functools
import inspect
import sys

from etils import epy

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.serving import saved_models

with epy.lazy_imports():
  import tensorflow as tf

  from tff_fedemb.models import pretrained

_NO_FILE = {"none": None, "imagenet": "imagenet"}


@functools.cache
def load(
  name: str,
  image_size: int,
  weights: str,
  *,
  layer: str | None = None,
  seed: int = 0,
) -> saved_models.Model:
  """Creates a model without its classifier, and loads its weights.

  Its module's own `preprocess_input` makes images ready.

  Args:
    name: Name of the function in `tf.keras.applications`.
    image_size: Side of the images in pixels.
    weights: "imagenet", which Keras downloads; "none", random; or a file, as
      of `pretrained.load_pretrained`.
    layer: As of `saved_models.load`; `None` for the mean of the last maps.
    seed: Seed of random weights.

  Raises:
    errors.FieldError: If there is no such model, size, file or layer.
  """
  functions = dict(inspect.getmembers(tf.keras.applications, callable))
  checks.check_choice("application", name, functions)
  create = functions[name]
  tf.keras.utils.set_random_seed(seed)
  must = f"be made with image_size {image_size} and weights {weights}"
  # Keras raises whatever comes of a size that is too small, or no network.
  with errors.as_field_error("application", must, name):
    model = create(
      include_top=False,
      weights=_NO_FILE.get(weights),
      input_shape=(image_size, image_size, 3),
      pooling="avg",
    )
  if weights not in _NO_FILE:
    try:
      pretrained.load_pretrained(model, weights)
    except errors.FieldError as error:
      raise error.renamed("weights") from error
  return saved_models.from_keras(
    model,
    functools.partial(load, name, image_size, weights, layer=layer, seed=seed),
    layer=layer,
    prepare=sys.modules[create.__module__].preprocess_input,
  )
