"""Noise of the in-process runtime and of TFF's, if it comes from a seed.

Its law, and that it is fresh, is in `aggregators/mechanisms_test`.
"""

import numpy as np
import pytest

from tests.aggregators import released

# A release with noise. Two tensors of `_LENGTH` numbers, so that noise which
# they share would be seen. The three clients' updates have these norms, in
# units of the clip norm: two are clipped. The divisor is not their number, and
# no two factors of mean or noise are equal, so that none passes for another.
_NORMS = (0.25, 1.5, 3.0)
_LENGTH = 1000
_CLIP_NORM = 2.0
_NOISE_MULTIPLIER = 0.05
_CLIENTS_PER_ROUND = 5.0
# Numbers of either tensor that the updates are spread over.
_CARRYING = 50
_DIRECTION = np.tile(
  (np.arange(_LENGTH) < _CARRYING) / np.sqrt(2 * _CARRYING), 2
)
_UPDATES = [norm * _CLIP_NORM * _DIRECTION for norm in _NORMS]
_TRUE_MEAN = (0.25 + 1.0 + 1.0) * _CLIP_NORM / _CLIENTS_PER_ROUND * _DIRECTION
_TRUE_STDDEV = _NOISE_MULTIPLIER * _CLIP_NORM / _CLIENTS_PER_ROUND


def _create(runtime_name, name="gaussian", **options):
  return released.Aggregation(
    name,
    shapes=((_LENGTH,), (_LENGTH,)),
    runtime_name=runtime_name,
    clients_per_round=_CLIENTS_PER_ROUND,
    clip_norm=_CLIP_NORM,
    noise_multiplier=_NOISE_MULTIPLIER,
    **options,
  )


@pytest.mark.parametrize(
  ("name", "options"),
  [
    ("tree", {"restart_every": 3}),
    pytest.param("adaptive_tree", {"restart_every": 3}, marks=pytest.mark.slow),
    pytest.param("blt", {}, marks=pytest.mark.slow),
    pytest.param("banded", {}, marks=pytest.mark.slow),
  ],
)
def test_seeded_noise_is_the_same_in_both_runtimes(name, options):
  num_rounds = 5
  reference, aggregation = (
    _create(
      runtime_name,
      name,
      rounds=num_rounds,
      min_separation=2,
      noise_seed=3,
      **options,
    )
    for runtime_name in ("tff", "in_process")
  )
  updates = [_UPDATES] * num_rounds
  expected = reference.run(updates)
  found = aggregation.run(updates)
  np.testing.assert_allclose(found.means, expected.means, rtol=1e-5, atol=1e-7)
  # A run of one that goes on in the other.
  resumed = aggregation.run(
    updates[2:], aggregation.load(reference.save(expected.states[1]))
  )
  np.testing.assert_allclose(
    resumed.means, expected.means[2:], rtol=1e-5, atol=1e-7
  )
  for each in (reference, aggregation):
    each.close()
  # There is noise, another one in each round and tensor.
  noise = (expected.means - _TRUE_MEAN).reshape(2 * num_rounds, _LENGTH)
  assert np.all(noise.std(axis=1) > 0.5 * _TRUE_STDDEV)
  assert len(np.unique(noise, axis=0)) == 2 * num_rounds
