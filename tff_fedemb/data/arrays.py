"""Checks and converts your arrays: pixels, labels, and the user of each row.

A value that conversion would change is refused, and the error names its row: a
cast would wrap it around or truncate it, and all rows without a name would
become one user.
"""

from __future__ import annotations

from collections.abc import Sequence
import numbers
from typing import Any

from etils import epy
import numpy as np

from tff_fedemb import errors

with epy.lazy_imports():
  import pandas as pd

# Texts that libraries write in place of missing values.
_MISSING = ("", "nan", "NaN", "NaT", "None", "<NA>")
_UNMASK = "Leave those rows out, or fill them."
_INT64 = np.iinfo(np.int64)


def to_array(name: str, values: Any) -> np.ndarray:
  """Returns an array in which no value is hidden by a mask.

  Args:
    name: Your name for it, for errors.
    values: NumPy's, pandas' or another array, or lists.

  Returns:
    A NumPy array of any type, which may share the memory of `values`.

  Raises:
    errors.FieldError: If it is ragged, or a value is masked.
  """
  if np.ma.is_masked(values):
    row = np.argwhere(np.ma.getmaskarray(values))[0][0]
    raise errors.FieldError(
      name, "have no masked value", f"one in row {row:,}", _UNMASK
    )
  with errors.as_field_error(name, "be an array", type(values).__name__):
    return np.asarray(values)


def to_numbers(name: str, values: Any) -> np.ndarray:
  """Returns an array of one of NumPy's types of integers or floats.

  Args:
    name: Your name for it, for errors.
    values: See `to_array`; also numbers that are objects, such as those of
      pandas' nullable columns, or a column of arrays of one shape.

  Returns:
    The same numbers, of any shape; truth values and texts are refused.

  Raises:
    errors.FieldError: If it is ragged, or a value is masked, missing or not a
      number.
  """
  array = to_array(name, values)
  if array.dtype.kind == "O" and array.ndim == 1:
    with errors.as_field_error(name, "be an array", "a column"):
      array = np.array([np.asarray(row) for row in array])
  if array.dtype.kind == "O":
    check_complete(name, array)
    is_number = [isinstance(value, numbers.Real) for value in array.flat]
    is_other = ~np.reshape(is_number, array.shape)
    _refuse_first(name, "hold numbers", array, is_other)
    array = np.array(array.tolist())
  if array.dtype.kind not in "iuf":
    raise errors.FieldError(name, "hold numbers", array.dtype)
  return array


def to_floats(name: str, values: np.ndarray) -> np.ndarray:
  """Returns numbers as float32.

  Args:
    name: Your name for them, for errors.
    values: Integers or floats, `[rows, ...]`.

  Returns:
    float32, of the same shape; digits beyond float32's are rounded.

  Raises:
    errors.FieldError: If a number is not finite, or too large for float32.
  """
  with np.errstate(over="ignore"):
    floats = values.astype(np.float32, copy=False)
  _refuse_first(name, "be finite as float32", values, ~np.isfinite(floats))
  return floats


def check_complete(name: str, values: np.ndarray) -> None:
  """Refuses missing values.

  Args:
    name: Your name for the values, for errors.
    values: An array of any type, `[rows, ...]`.

  Raises:
    errors.FieldError: If a value is NaN, NaT, None or pandas' NA; it names the
      first row.
  """
  if values.dtype.kind in "OfM":
    is_missing = pd.isna(values)
    _refuse_first(name, "have no missing value", values, is_missing, _UNMASK)


def to_labels(name: str, labels: Any, num_rows: int) -> np.ndarray:
  """Returns labels as int64, the same numbers.

  Args:
    name: Your name for them, for errors.
    labels: Integers of any type, `[num_rows]`; truth values and floats are
      refused.
    num_rows: Number of examples.

  Returns:
    int64 `[num_rows]`, a copy.

  Raises:
    errors.FieldError: If a label is missing or beyond int64, or they are not
      integers, one for each example.
  """
  must = f"be integers [{num_rows}], one for each example"
  values = _to_column(name, labels, num_rows, must, kinds="iu")
  if values.dtype.kind == "u":
    _refuse_first(name, "be below 2^63", values, values > _INT64.max)
  return values.astype(np.int64)


def to_labels_or_texts(name: str, labels: Any, num_rows: int) -> np.ndarray:
  """Returns labels that are integers as int64, and names of classes as texts.

  Args:
    name: Your name for them, for errors.
    labels: All integers, as in `to_labels`, or all texts, as in `to_names`.
    num_rows: Number of examples.

  Returns:
    `[num_rows]`, int64 or texts.

  Raises:
    errors.FieldError: If a label is missing, or they are neither, one for each
      example.
  """
  must = f"be integers or strings [{num_rows}], one for each example"
  values = _to_column(name, labels, num_rows, must, kinds="iuU")
  if values.dtype.kind == "U":
    return to_names(name, values, num_rows)
  return to_labels(name, values, num_rows)


def to_names(name: str, values: Any, num_rows: int) -> np.ndarray:
  """Returns names of users or classes as a NumPy array.

  Args:
    name: Your name for them, for errors.
    values: Texts (also UTF-8 bytes), integers, truth values or dates, all of
      one kind, `[num_rows]`.
    num_rows: Number of examples.

  Returns:
    `[num_rows]`, of one of NumPy's types; two names are equal exactly if the
    values are.

  Raises:
    errors.FieldError: If a name is missing, or they are not of one of these
      kinds, one for each example.
  """
  must = f"be strings or integers [{num_rows}], one for each example"
  names = _to_column(name, values, num_rows, must, kinds="UiubM")
  if names.dtype.kind == "U":
    is_missing = np.isin(np.char.strip(names), _MISSING)
    _refuse_first(name, "have names in all rows", names, is_missing, _UNMASK)
  return names


def are_of_unit(images: np.ndarray) -> bool:
  """Whether pixels are floats that are all from 0 (black) to 1 (white).

  Args:
    images: Numbers of any shape.

  Returns:
    False for integers, even if all are 0 or 1; also if a pixel is NaN.
  """
  if images.dtype.kind != "f":
    return False
  is_inside = (images >= 0) & (images <= 1)
  return bool(is_inside.all())


def to_pixels(
  name: str,
  images: Any,
  *,
  of_unit: bool | None = None,
  whose: Sequence[Any] | None = None,
) -> np.ndarray:
  """Returns images as uint8, with the same brightness.

  Args:
    name: Your name for them, for errors.
    images: Integers in [0, 255], or floats that are all in [0, 1] or all whole
      numbers in [0, 255]; `[n, ...]`.
    of_unit: Whether the images of all splits are in [0, 1], as black pictures
      alone do not tell their scale; None to decide it by these images alone.
    whose: Client of each image, `[n]`, to be named in an error; None to name
      the row.

  Returns:
    uint8 of the same shape; floats in [0, 1] are multiplied by 255 and rounded.

  Raises:
    errors.FieldError: If a value is neither, or missing.

  Examples:
    >>> arrays.to_pixels("images", np.array([[[0.0, 0.5, 1.0]]]))
    array([[[  0, 128, 255]]], dtype=uint8)
  """
  images = to_numbers(name, images)
  if images.dtype == np.uint8:
    return images
  is_float = images.dtype.kind == "f"
  if of_unit is None:
    of_unit = are_of_unit(images)
  if of_unit:
    return np.rint(255 * images).astype(np.uint8)
  # Written so that NaN, which compares as false, is outside.
  outside = ~((images >= 0) & (images <= 255))
  if is_float and images.max(initial=0) <= 1:
    # Zeros and ones beside a split of larger numbers are of another scale.
    outside |= images > 0
  must = "hold integers from 0 to 255"
  if is_float:
    must += ", or floats that are all from 0 to 1, in every split"
  _refuse_first(name, must, images, outside, whose=whose)
  if is_float:
    _refuse_first(name, must, images, images != np.rint(images), whose=whose)
  return images.astype(np.uint8)


def _to_column(
  name: str,
  values: Any,
  num_rows: int,
  must: str,
  *,
  kinds: str,
) -> np.ndarray:
  """Returns a column `[num_rows]` of some of NumPy's kinds, without gaps.

  Bytes become texts. `kinds` has NumPy's letters, such as "iu"; `must` says in
  an error what the column has to be.

  Raises:
    errors.FieldError: If the shape, the kind or a value is another.
  """
  # NumPy would turn a list with one text into texts, NaN included.
  is_list = isinstance(values, list | tuple)
  column = to_array(name, np.array(values, object) if is_list else values)
  if column.shape != (num_rows,):
    found = f"{column.dtype} {list(column.shape)}"
    raise errors.FieldError(name, must, found)
  check_complete(name, column)
  if column.dtype.kind in "OT":
    column = _of_one_kind(name, column.astype(object), must)
  if column.dtype.kind == "S":
    with errors.as_field_error(name, "be texts in UTF-8", "others"):
      column = np.char.decode(column, "utf-8")
  if column.dtype.kind not in kinds:
    _refuse_first(name, must, column, np.ones(num_rows, bool))
  return column


def _of_one_kind(name: str, column: np.ndarray, must: str) -> np.ndarray:
  """Converts objects of one kind to an array of NumPy's type for it.

  Kinds are texts, bytes, truth values and integers of at most 64 bits.

  Raises:
    errors.FieldError: If they are of several kinds, or of another one.
  """
  for kind in (str, bytes, bool | np.bool, numbers.Integral):
    is_kind = np.array([isinstance(value, kind) for value in column], bool)
    if is_kind.all():
      array = np.array(column.tolist())
      # NumPy turns integers beyond 64 bits into floats or objects.
      if array.dtype.kind in "USbiu":
        # NumPy drops a NUL at the end: two names would be one.
        is_cut = array.astype(object) != column
        _refuse_first(name, "be without a NUL at the end", column, is_cut)
        return array
      raise errors.FieldError(name, must, "integers of more than 64 bits")
    must_be_one = f"{must}, of one kind"
    _refuse_first(name, must_be_one, column, is_kind != is_kind[0])
  raise errors.FieldError(name, must, f"{column[0]!r} in row 0")


def _refuse_first(
  name: str,
  must: str,
  values: np.ndarray,
  is_wrong: np.ndarray,
  advice: str = "",
  *,
  whose: Sequence[Any] | None = None,
) -> None:
  """Raises FieldError if a row has a wrong value; names the first such row.

  `is_wrong` is a mask of the shape of `values`, whose first axis are rows.
  """
  if not is_wrong.any():
    return
  place = tuple(np.argwhere(is_wrong)[0])
  row = int(place[0])
  value = values[place]
  where = f"row {row:,}" if whose is None else f"an image of {whose[row]!r}"
  value = value.item() if isinstance(value, np.generic) else value
  raise errors.FieldError(name, must, f"{value!r} in {where}", advice)
