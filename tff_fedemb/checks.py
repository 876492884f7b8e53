"""Checks of arguments, which raise `errors.FieldError` of the argument."""

from collections.abc import Collection, Hashable, Iterable, Iterator
import contextlib
import difflib
import math
import numbers
import operator
import pathlib
import sys
from typing import Any, TypeVar

from tff_fedemb import errors

_T = TypeVar("_T")

# Numbers of rounds are multiplied as floating-point numbers.
MAX_ROUNDS = 10**9
# Squares of noise multipliers between these, and the exponentials of the
# squares, are finite numbers.
MIN_NOISE_MULTIPLIER = 1e-6
MAX_NOISE_MULTIPLIER = 1e6
# Squares of these are far from the ends of single precision.
MIN_CLIP_NORM = 1e-15
MAX_CLIP_NORM = 1e15

# Products with a smaller delta are no longer normal numbers.
DELTA_RANGE = {"minimum": 1e-250, "below": 1}
# The threads of this process, on Linux, where forks are usual.
_THREADS = pathlib.Path("/proc/self/task")

# An error lists no more choices than these; it names the most similar ones.
_MOST_LISTED = 40
_LONGEST_SHOWN = 80


def is_number(value: Any) -> bool:
  """Returns whether value is a finite real number, and not a truth value.

  Args:
    value: Anything, also a number of NumPy.

  Returns:
    False for text, complex numbers, infinity and NaN as well.
  """
  return (
    isinstance(value, numbers.Real)
    and not isinstance(value, bool)
    and math.isfinite(value)
  )


def check_integer(
  name: str, value: Any, *, minimum: int, maximum: int | None = None
) -> int:
  """Checks an integer, Python's or NumPy's.

  Args:
    name: Name in an error.
    value: The number.
    minimum: The smallest value allowed.
    maximum: The largest value allowed; None for any.

  Returns:
    The number as an `int`.

  Raises:
    errors.FieldError: If value is out of range, a truth value or no integer.
  """
  is_integer = isinstance(value, numbers.Integral)
  if not is_integer or isinstance(value, bool) or value < minimum:
    raise errors.FieldError(
      name, f"be an integer of at least {minimum}", repr(value)
    )
  if maximum is not None and value > maximum:
    raise errors.FieldError(name, f"be at most {maximum:,}", f"{value:,}")
  return operator.index(value)


def check_number(
  name: str,
  value: Any,
  *,
  above: float | None = None,
  minimum: float | None = None,
  below: float | None = None,
  maximum: float | None = None,
) -> float:
  """Checks a finite number, Python's or NumPy's.

  With a maximum of infinity, infinity is allowed too.

  Args:
    name: Name in an error.
    value: The number.
    above: Exclusive lower bound; None for no such bound, as below.
    minimum: Inclusive lower bound.
    below: Exclusive upper bound.
    maximum: Inclusive upper bound.

  Returns:
    The number as a `float`.

  Raises:
    errors.FieldError: If value is out of range or no finite number.
  """
  is_largest = maximum == math.inf and isinstance(value, float)
  if is_largest and value == maximum:
    return math.inf
  outside = not is_number(value) or (
    (above is not None and value <= above)
    or (minimum is not None and value < minimum)
    or (below is not None and value >= below)
    or (maximum is not None and value > maximum)
  )
  if outside:
    must = _range_in_words(above, minimum, below, maximum)
    # Infinity is positive, too.
    if value == math.inf and must == "be positive":
      must = "be positive and finite"
    raise errors.FieldError(name, must, repr(value))
  return float(value)


def _range_in_words(
  above: float | None,
  minimum: float | None,
  below: float | None,
  maximum: float | None,
) -> str:
  """The requirement that a number is in a range, as `check_number` takes it."""
  has_low = above is not None or minimum is not None
  if has_low and (below is not None or maximum is not None):
    left = f"({above:g}" if above is not None else f"[{minimum:g}"
    right = f"{below:g})" if below is not None else f"{maximum:g}]"
    return f"be in {left}, {right}"
  if above == 0:
    return "be positive"
  if above is not None:
    return f"be more than {above:g}"
  if minimum is not None:
    return f"be at least {minimum:g}"
  if below is not None:
    return f"be less than {below:g}"
  if maximum is not None:
    return f"be at most {maximum:g}"
  return "be a finite number"


def check_numbers(
  name: str, words: Iterable[str], *, most: int
) -> tuple[float, ...]:
  """Reads positive numbers from words, as a flag gives them.

  Args:
    name: Name in an error.
    words: The numbers as texts.
    most: Maximum number of different ones.

  Returns:
    The numbers, each once, ascending.

  Raises:
    errors.FieldError: If they are not 1 to `most` positive numbers.
  """
  words = tuple(words)
  try:
    found = sorted({float(word) for word in words})
  except ValueError:
    found = []
  if not 1 <= len(found) <= most or not all(0 < x < math.inf for x in found):
    raise errors.FieldError(
      name,
      f"be 1 to {most} positive numbers with commas between",
      repr(",".join(words)),
    )
  return tuple(found)


def check_choice(name: str, value: Any, choices: Collection[Any]) -> None:
  """Checks that a value is one of the choices.

  The error lists the choices; if there are more than 40, only those that are
  most like the value.

  Args:
    name: Name in an error.
    value: Anything, also what cannot be a key.
    choices: The values allowed; a registry allows `module:Class` as well.

  Raises:
    errors.FieldError: If value is none of the choices.
    errors.DataError: If value is a `module:Class` that cannot be imported, or
      whose base is not that of the registry.
  """
  # A damaged file may hold a list, which cannot be a key.
  if not isinstance(value, Hashable) or value not in choices:
    listed, words = sorted(map(str, choices)), "be one of"
    if len(listed) > _MOST_LISTED:
      words = f"be one of {len(listed)}, such as"
      listed = difflib.get_close_matches(str(value), listed) or listed[:3]
    raise errors.FieldError(name, f"{words} {', '.join(listed)}", repr(value))


def check_type(name: str, value: object, kind: type, words: str = "") -> None:
  """Checks that a value is of a type.

  Args:
    name: Name in an error.
    value: Anything.
    kind: The type that it must have.
    words: The type in words ["a" and its name in `tff_fedemb`].

  Raises:
    errors.FieldError: If it has another type. A value that takes more than a
      line, such as an array, is told by its type.
  """
  if isinstance(value, kind):
    return
  found = repr(value)
  if "\n" in found or len(found) > _LONGEST_SHOWN:
    found = f"a {type(value).__name__}"
  if not words:
    article = "an" if kind.__name__[0] in "AEIOU" else "a"
    # The package exports BackboneConfig as Backbone, and others alike.
    words = f"{article} {kind.__name__.removesuffix('Config')}"
  raise errors.FieldError(name, f"be {words}", found)


def check_given(name: str, value: _T | None) -> _T:
  """Checks that a value is there.

  Args:
    name: Name in an error.
    value: The value; None if it was not given.

  Returns:
    The value.

  Raises:
    errors.FieldError: If it was not given.
  """
  if value is None:
    raise errors.FieldError(name, "be given", "nothing")
  return value


def check_one_of(**values: Any) -> None:
  """Checks that just one of several values is given.

  Args:
    **values: Values by their names; one that is false counts as not given.

  Raises:
    errors.FieldError: If none is given, or more than one.
  """
  given = [name for name, value in values.items() if value]
  if len(given) != 1:
    first, *others = values
    raise errors.FieldError(
      first,
      f"be given, or {' or '.join(others)}, one of them",
      " and ".join(given) or "none",
    )


def check_not_alone(name: str, number: int) -> None:
  """Checks that noise has two or more to protect.

  Noise hides one among others: one alone cannot hide.

  Args:
    name: Name of the number in an error.
    number: Number of those who are protected.

  Raises:
    errors.FieldError: If there are fewer than two.
  """
  if number < 2:
    must = "be two or more where noise protects them: one alone cannot hide"
    raise errors.FieldError(name, must, number)


def check_delta(delta: Any) -> float:
  """Checks a delta.

  Args:
    delta: Probability with which epsilon need not hold.

  Returns:
    Delta as a `float`.

  Raises:
    errors.FieldError: If it is not in `DELTA_RANGE`, [1e-250, 1).
  """
  return check_number("delta", delta, **DELTA_RANGE)


def check_noise_multiplier(noise_multiplier: Any) -> float:
  """Checks that a noise multiplier can be accounted for.

  Args:
    noise_multiplier: Standard deviation / clip norm.

  Returns:
    The noise multiplier as a `float`.

  Raises:
    errors.FieldError: If it is neither 0 nor in [`MIN_NOISE_MULTIPLIER`,
      `MAX_NOISE_MULTIPLIER`].
  """
  low, high = MIN_NOISE_MULTIPLIER, MAX_NOISE_MULTIPLIER
  is_valid = is_number(noise_multiplier) and (
    noise_multiplier == 0 or low <= noise_multiplier <= high
  )
  if not is_valid:
    raise errors.FieldError(
      "noise_multiplier",
      f"be 0 or in [{low:g}, {high:g}]",
      repr(noise_multiplier),
    )
  return float(noise_multiplier)


def _names_of_threads() -> Iterator[str]:
  """Yields the name of each thread of this process."""
  for path in _THREADS.glob("*/comm"):
    # A thread may end once it is listed.
    with contextlib.suppress(OSError):
      yield path.read_text()


def check_not_forked() -> None:
  """Refuses a forked process, in which TensorFlow would wait for lost threads.

  A fork copies TensorFlow's state, but not its threads. This process is such a
  fork if it has no thread of TensorFlow's, and TensorFlow does not allow
  another number of threads, as it never does once it has run. Where the system
  does not list threads as Linux does, nothing is checked.

  Raises:
    errors.FieldError: If TensorFlow had run before this process was forked.
  """
  tensorflow: Any = sys.modules.get("tensorflow")
  if tensorflow is None or not _THREADS.exists():
    return
  if any(name.startswith("tf_Compute") for name in _names_of_threads()):
    return
  threading = tensorflow.config.threading
  before = threading.get_inter_op_parallelism_threads()
  try:
    threading.set_inter_op_parallelism_threads(before + 1)
    threading.set_inter_op_parallelism_threads(before)
  except RuntimeError as error:
    raise errors.FieldError(
      "process",
      "be started by multiprocessing's spawn",
      "a fork of one in which TensorFlow had run, whose threads it would wait"
      " for",
      "multiprocessing.get_context('spawn') starts one.",
    ) from error


def count_in_words(number: float) -> str:
  """Returns a count with thousands separated, such as '131,072' or '489.66'.

  Args:
    number: A finite number; expected counts need not be whole numbers.

  Returns:
    The number in words, with at most two decimals.
  """
  is_whole = number == int(number)
  return f"{int(number) if is_whole else round(number, 2):,}"
