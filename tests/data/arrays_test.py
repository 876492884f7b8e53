"""Tests of arrays as people have them."""

import datetime

import numpy as np
import pandas as pd
import pytest

from tff_fedemb import errors
from tff_fedemb.data import arrays

_NAMES = ["b", "a", "b"]
_HOLE = [False, True, False]


@pytest.mark.parametrize(
  "values",
  [
    [1.0, np.nan, 1.0],
    ["b", np.nan, "b"],
    # NumPy has made texts of all of it.
    np.array(["b", np.nan, "b"]),
    np.array(["b", None, "b"], object),
    pd.array([1, None, 1], dtype="Int64"),
    pd.Series(["b", None, "b"]),
    pd.Series(["b", None, "b"], dtype="category"),
    pd.Series(["b", pd.NA, "b"], dtype="string"),
    np.array(["2020-01-01", "NaT", "2020-01-01"], "M8[D]"),
    ["b", "", "b"],
    ["b", " ", "b"],
    [b"b", b"", b"b"],
    np.ma.masked_array([1, 1, 1], _HOLE),
    np.ma.masked_array(_NAMES, _HOLE),
  ],
)
def test_a_missing_name_is_told_with_its_row(values):
  with pytest.raises(errors.FieldError, match=r"users must have .* row 1\b"):
    arrays.to_names("users", values, 3)


@pytest.mark.parametrize(
  "values",
  [
    [1, "1", 1],
    np.array([1, "1", 1], object),
    ["b", b"b", "b"],
    [True, 1, 1],
    [1.5, 2.0, 2.0],
    [datetime.date(2020, 1, 1)] * 3,
    [2**63, -1, 2**63],
    [2**64, 1, 1],
    [["b"], ["a"], ["b"]],
    _NAMES[:2],
    [b"\xff", b"a", b"b"],
    [b"a", b"a\0", b"b"],
    3,
  ],
)
def test_names_of_other_or_several_kinds_are_refused(values):
  with pytest.raises(errors.FieldError, match="users must be"):
    arrays.to_names("users", values, 3)


@pytest.mark.parametrize(
  "values",
  [
    _NAMES,
    np.array(_NAMES),
    np.array(_NAMES, object),
    [b"b", b"a", b"b"],
    pd.Series(_NAMES),
    pd.Series(_NAMES, dtype="category"),
    ["NA", "007", "NA"],
    [7, -7, 7],
    np.array([2**64 - 1, 2**64 - 2, 2**64 - 1], np.uint64),
    pd.array([2, 1, 2], dtype="Int64"),
    np.ma.masked_array([2, 1, 2], mask=False),
    np.array([True, False, True]),
    np.array(["2020-01-02", "2020-01-01", "2020-01-02"], "M8[D]"),
  ],
)
def test_names_are_kept_apart(values):
  names, numbers = np.unique(
    arrays.to_names("users", values, 3), return_inverse=True
  )
  assert numbers.tolist() == [1, 0, 1]
  assert names.dtype.kind != "O"


@pytest.mark.parametrize(
  ("values", "message"),
  [
    ([1.0, np.nan, 1.0], "no missing value, found nan in row 1"),
    (pd.array([1, None, 1], dtype="Int64"), "no masked value, .* in row 1"),
    (np.ma.masked_array([1, 1, 1], _HOLE), "no masked value, .* in row 1"),
    (np.array([1, 2**63, 1], np.uint64), r"below 2\^63, found 9.* row 1"),
    ([1.0, 2.0, 3.0], "be integers .* found 1.0 in row 0"),
    (_NAMES, "be integers"),
    ([True, False, True], "be integers"),
    ([1, 2], r"be integers \[3\]"),
  ],
)
def test_labels_that_are_no_integers_are_refused(values, message):
  with pytest.raises(errors.FieldError, match=f"labels must .*{message}"):
    arrays.to_labels("labels", values, 3)


@pytest.mark.parametrize("dtype", ["uint64", "int8", "Int64", object])
def test_labels_keep_their_numbers(dtype):
  labels = arrays.to_labels("labels", pd.Series([5, 0, 7], dtype=dtype), 3)
  assert labels.dtype == np.int64
  assert labels.tolist() == [5, 0, 7]


_PIXELS = np.arange(0, 256, 5, dtype=np.uint8).reshape([4, 13, 1])


@pytest.mark.parametrize(
  "images",
  [
    _PIXELS,
    _PIXELS.astype(np.int64),
    _PIXELS.astype(np.float32),
    (_PIXELS / 255).astype(np.float16),
    _PIXELS / 255,
    np.ma.masked_array(_PIXELS, mask=False),
  ],
)
def test_pixels_have_the_same_brightness(images):
  pixels = arrays.to_pixels("images", images)
  assert pixels.dtype == np.uint8
  np.testing.assert_array_equal(pixels, _PIXELS)


_WIDE = _PIXELS.astype(np.float64)


@pytest.mark.parametrize(
  ("images", "found"),
  [
    (_WIDE / 127.5 - 1, "-1.0 in row 0"),
    (np.where(_WIDE > 200, np.nan, _WIDE / 255), "nan in row 3"),
    (np.where(_WIDE > 200, np.inf, _WIDE), "inf in row 3"),
    (_WIDE / 2, "2.5 in row 0"),
    (2 * _PIXELS.astype(np.int32), "260 in row 2"),
    (_PIXELS.astype(np.int32) - 128, "-128 in row 0"),
    (_PIXELS.astype(np.uint64) + 2**63, "9223372036854775808 in row 0"),
    (np.ma.masked_greater(_PIXELS, 200), "one in row 3"),
    (_PIXELS > 9, "bool"),
    (_PIXELS + 1j, "complex128"),
    (_PIXELS.astype(str), "<U3"),
    ([np.zeros([2, 2]), np.zeros([3, 2])], "list: "),
  ],
)
def test_other_pixels_are_refused(images, found):
  with pytest.raises(errors.FieldError, match=f"pixels must .* found {found}"):
    arrays.to_pixels("pixels", images)
