"""Tests of clipped examples."""

import numpy as np
import pytest

from tff_fedemb.features import examples as examples_lib


def _examples(features, labels=None, *, num_classes=3, clip_norm=1.0):
  if labels is None:
    labels = np.arange(len(features)) % num_classes
  return examples_lib.ClippedExamples(
    features, labels, num_classes=num_classes, clip_norm=clip_norm
  )


@pytest.mark.parametrize("clip_norm", [1e-5, 300.0])
@pytest.mark.parametrize(
  ("dtype", "exponents"),
  [
    # These are the smallest to the largest numbers there are; squares of
    # float64's have to stay finite.
    (np.float32, [-45, -42, -38, -20, 0, 20, 38]),
    (np.float64, [-320, -300, -163, -162, -161, -154, 0, 150]),
  ],
)
def test_no_norm_is_above_the_bound(dtype, exponents, clip_norm):
  rng = np.random.default_rng(0)
  magnitudes = np.repeat([float(f"1e{e}") for e in exponents], 20)
  features = (
    magnitudes[:, None] * rng.uniform(1, 3, [len(magnitudes), 300])
  ).astype(dtype)
  clipped = examples_lib.clip_rows(features, clip_norm)
  assert clipped.dtype == dtype
  norms = np.linalg.norm(clipped.astype(np.longdouble), axis=1)
  assert norms.max() <= clip_norm * (1 + 4 * np.finfo(dtype).eps)
  # Those that are shorter stay what they are.
  short = 60 * magnitudes < clip_norm
  np.testing.assert_array_equal(clipped[short], features[short])


@pytest.mark.parametrize("bad", [np.nan, -np.inf, 1e155])
def test_features_must_be_finite(bad):
  features = np.ones([4, 3])
  features[2, 1] = bad
  with pytest.raises(ValueError, match="finite numbers, found 1 or more"):
    list(_examples(features).chunks())


@pytest.mark.parametrize("order", [None, [5, 0, 9, 2]])
@pytest.mark.parametrize("kept_bytes", [0, 10**6])
def test_every_pass_has_each_example_once(monkeypatch, order, kept_bytes):
  monkeypatch.setattr(examples_lib, "_KEPT_BYTES", kept_bytes)
  monkeypatch.setattr(examples_lib, "_NUMBERS_OF_CHUNK", 3 * (50 + 4))
  monkeypatch.setattr(examples_lib, "_NUMBERS_OF_BLOCK", 2 * 50)
  features = np.random.default_rng(0).standard_normal([10, 50])
  labels = np.arange(10) % 3
  examples = _examples(features, labels, clip_norm=7.0)
  norms = np.linalg.norm(features, axis=1, keepdims=True)
  clipped = features * np.minimum(7.0 / norms, 1.0)
  rows = None if order is None else np.array(order, int)
  expected = np.arange(10) if rows is None else rows
  for _ in range(2):
    chunks = list(examples.chunks(rows, wide=4))
    assert all(len(x) == len(y) <= 3 for x, y in chunks)
    assert len(chunks) == -(-len(expected) // 3)
    found_features, found_labels = map(
      np.concatenate, zip(*chunks, strict=True)
    )
    np.testing.assert_allclose(found_features, clipped[expected], rtol=1e-12)
    np.testing.assert_array_equal(found_labels, labels[expected])


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"features": np.ones(4)}, r"features must be .* \[4\]"),
    ({"features": np.full([4, 2], "a")}, "features must be .* found <U"),
    ({"labels": np.zeros(3, int)}, r"labels must be .*\[4\].* int64 \[3\]"),
    ({"labels": np.array([0, 1, 2, 3])}, r"in \[0, 3\), found 0 to 3"),
    ({"num_classes": 1}, "num_classes .* found 1"),
  ],
)
def test_refuses(changes, message):
  with pytest.raises(ValueError, match=message):
    _examples(**({"features": np.ones([4, 2])} | changes))
