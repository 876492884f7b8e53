"""Tests of what is kept out, whatever a notebook imported first."""

import os
import subprocess
import sys

import pytest

# Each imports TensorFlow anew.
pytestmark = pytest.mark.slow

_TRAINER = """
import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy
assert tff.learning.algorithms.build_weighted_fed_avg
assert tf.keras.Model.__module__.startswith("tf_keras")
assert not {"jax", "jaxlib", "tensorflow_estimator"} & set(sys.modules)
print("works")
# Programs and trainings do so: TFF's own end is reported as an exception.
from tff_fedemb.runtime import worker_process
worker_process.end_worker_on_exit()
"""


def _run(first):
  # This process has set it already.
  environ = dict(os.environ)
  environ.pop("TF_USE_LEGACY_KERAS", None)
  return subprocess.run(
    [
      sys.executable,
      "-c",
      f"import sys\n{first}\nimport tff_fedemb\n{_TRAINER}",
    ],
    env=environ,
    capture_output=True,
    text=True,
  )


def test_works_after_keras_and_tensorflow():
  ended = _run("import keras, tensorflow; assert keras.__version__[0] == '3'")
  assert ended.stdout == "works\n", ended.stderr


def test_tensorflow_says_nothing_of_itself_and_takes_no_more_than_it_needs(
  monkeypatch,
):
  """Also where a formatter has put the import of TFF first."""
  monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
  ended = _run("""
import tensorflow_federated
print("first")
import tensorflow as tf
# It asks each module that there is for its file.
import textwrap
tf.autograph.to_graph(textwrap.dedent)
late = {"keras", "matplotlib", "tensorflow_probability.python"}
assert not late & set(sys.modules)
# A module whose import was put off is there when it is asked for.
assert tensorflow_federated.aggregators.EncodedSumFactory
import tensorflow_probability
assert tensorflow_probability.distributions.Geometric
import tensorflow_model_optimization
assert "cluster_weights" in dir(
  tensorflow_model_optimization.clustering.keras
)
assert tensorflow_model_optimization.sparsity.keras.prune_low_magnitude
""")
  assert ended.stdout == "first\nworks\n"
  assert ended.stderr == ""


def test_says_what_to_import_first():
  ended = _run("""
import tensorflow as tf
tf.keras.layers.Dense(1)
try:
  import tensorflow_federated
except ImportError as error:
  print(error)
""")
  message = (
    "tf.keras is Keras 3 in this process, and TensorFlow Federated needs Keras"
    " 2: restart, and import tff_fedemb before you use tf.keras, or set"
    " TF_USE_LEGACY_KERAS=1."
  )
  assert ended.stdout == f"{message}\n"
  assert ended.returncode == 1
  assert ended.stderr.splitlines()[-1] == f"ImportError: {message}"
