"""Makes what features are extracted from and with, and extracts them."""

import os

import numpy as np
import tensorflow as tf

from tests.binaries import programs
from tff_fedemb.features import feature_files


def export(path, shape, scale=1 / 255):
  """Saves a model whose embeddings are the pixels times a number."""

  @tf.function(
    input_signature=[tf.TensorSpec([None, *shape], tf.float32, name="images")]
  )
  def serve(images):
    flat = tf.reshape(images, [-1, int(np.prod(shape))])
    return {"embeddings": scale * flat}

  module = tf.Module()
  module.serve = serve
  tf.saved_model.save(module, os.fspath(path), serve)
  return path


def _call(directory, options):
  flags = {"output": directory / "o.npz", "overwrite": True} | options
  if not {"saved_model", "application"} & set(flags):
    flags = {"embedding": "pixels"} | flags
  arguments = [f"--{k}={v}" for k, v in flags.items() if v is not None]
  return programs.call("extract_features", *arguments)


def extract(directory, **options):
  """Calls the program; returns what is in its file, and what it says."""
  ended = _call(directory, options)
  assert (ended.status, ended.errors) == (0, "")
  path = options.get("output", directory / "o.npz")
  return feature_files.read_features(path), ended.output


def check_refused(directory, message, **options):
  """Checks that the program ends with one line, and writes nothing."""
  before = sorted(directory.rglob("*"))
  ended = _call(directory, options)
  programs.check_refused(ended, "")
  assert message in ended.errors
  assert sorted(directory.rglob("*")) == before
