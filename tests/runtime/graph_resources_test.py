"""Tests that clients and rounds share no resource, beside TFF's own runtime."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.runtime import resources
from tff_fedemb import errors
from tff_fedemb import runtime
from tff_fedemb.runtime import computation_graph


@pytest.mark.parametrize("place", [resources.CLIENT, resources.SERVER])
@pytest.mark.parametrize("use", resources.EXPECTED)
def test_has_resources_of_its_own_or_is_refused(use, place, reference):
  process = resources.build_process(use, place)
  expected = resources.EXPECTED[use][place]
  assert resources.run(reference, process, place) == expected
  for options in resources.OPTIONS:
    with runtime.create_runtime("in_process", **options) as started:
      if use is not resources.use_queue:
        assert resources.run(started, process, place) == expected, options
        continue
      with pytest.raises(
        errors.FieldError,
        match="runtime must be tff for a process with resources that clients or"
        " rounds would share here, found FIFOQueueV2 '.*queue' in '"
        + ("work" if place == resources.CLIENT else "update"),
      ):
        started.initialize(process)


def _name_twice(number):
  sizes = []
  for key in (number, number + 1):
    with tf.control_dependencies(sizes):
      table = tf.raw_ops.MutableHashTableV2(
        key_dtype=tf.int64, value_dtype=tf.int64, shared_name="both"
      )
      insertion = tf.raw_ops.LookupTableInsertV2(
        table_handle=table, keys=key, values=key
      )
    with tf.control_dependencies([insertion]):
      sizes.append(tf.raw_ops.LookupTableSizeV2(table_handle=table))
  return sizes[-1]


def _make_in_data_set(number):
  return (
    tf.data.Dataset.range(3)
    .map(lambda row: resources.use_mutable_table(row + number))
    .reduce(number, tf.add)
  )


def _call_python(number):
  return tf.ensure_shape(tf.py_function(lambda n: n, [number], tf.int64), [])


@pytest.mark.parametrize(
  ("use", "found"),
  [
    (_name_twice, "MutableHashTableV2 '.*_1'"),
    (_make_in_data_set, "MutableHashTableV2 '.*'"),
    (_call_python, "EagerPyFunc '.*'"),
  ],
)
def test_what_would_differ_is_refused(use, found):
  computation = tff.tensorflow.computation(use, np.int64)
  with pytest.raises(errors.FieldError, match=f"found {found} in 'some part'"):
    computation_graph.ComputationGraph("some part", computation)
