"""Tests of the Gaussian mechanism on a secure sum: rounding and bounds."""

import numpy as np
import pytest
import tensorflow_federated as tff

from tests.mechanisms import cases
from tff_fedemb.mechanisms import registry

CASES = cases.Cases(once=[cases.Slow()])

_CLIP_NORM = 2.0
_CLIENTS = 4.0
# A sign and 31 bits for a number up to twice the clip norm.
_STEP = _CLIP_NORM / 2.0**30


@pytest.fixture(name="aggregation", scope="module")
def _aggregation(create_aggregation):
  return create_aggregation(
    "secure_gaussian",
    shapes=((40,), (60,)),
    clip_norm=_CLIP_NORM,
    clients_per_round=_CLIENTS,
  )


def test_update_is_rounded_to_32_bits(aggregation):
  update = np.zeros(100, np.float32)
  update[[0, 39, 40, 99]] = np.array([1.0, -3.0, 7.7, -12.9]) * 0.9 * _STEP
  update[:2] += 1.0, -1.0
  expected = np.round(update / _STEP) * _STEP / _CLIENTS
  (found,) = aggregation.run([[update]]).means
  np.testing.assert_array_equal(found, expected.astype(np.float32))
  assert aggregation.mechanism.config.sums_securely


def test_norm_after_rounding_is_at_most_the_clip_norm(aggregation):
  generator = np.random.default_rng(3)
  for spread in (0.0, 1.0):
    update = 10.0 * np.exp(spread * generator.normal(size=100))
    (found,) = aggregation.run([[update]]).means
    norm = np.linalg.norm(found * _CLIENTS)
    assert norm <= _CLIP_NORM
    # Not one millionth is lost to the margin.
    assert norm == pytest.approx(_CLIP_NORM, rel=1e-6)


def test_updates_take_no_other_way_than_secure_sums(aggregation):
  config = registry.AGGREGATORS["secure_gaussian"]()
  value_type = tff.to_type([(np.float32, [7, 11])])
  process = config.create(_CLIENTS).factory.create(value_type)

  @tff.federated_computation(process.next.type_signature.parameter)
  def next_round(state, value):
    output = process.next(state, value)
    return output.state, tff.federated_zip((output.result, output.measurements))

  form = tff.backends.mapreduce.get_map_reduce_form_for_computation(next_round)
  plain, secure, *others = form.work.type_signature.result
  assert "[7,11]" in str(secure)
  # Counts alone: of clipped updates, and of norms by size.
  assert "float" not in str(plain)
  assert "[7,11]" not in f"{plain}{others}"
