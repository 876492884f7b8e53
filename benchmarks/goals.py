"""What the figures of the benchmark are compared with, and meant to be."""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
from typing import Any

PFL_RESEARCH = "pfl_research"
GROWTH_CLIENTS = (10, 50, 200, 1000)
LARGE_MODELS = ("resnet50_4x2x16_112", "mobilenet_v2_4x2x16_224")
PHOTOS = ("mobilenet_v2_gld_encoded", "mobilenet_v2_gld_decoded")
# Compiles and buffers for some rounds before it is what it stays.
LONG_RUN_SETTLED_ROUND = 50
LONG_RUN_ROUNDS = 500
LONG_RUN = f"mobilenet_v2_small_4x1x8_{LONG_RUN_ROUNDS}_rounds"


def resident_memory_figure(round_num: int) -> str:
  """What a row calls the memory that is resident after so many rounds."""
  return f"resident_memory_bytes_after_{round_num}_rounds"


@dataclasses.dataclass(frozen=True)
class Entry:
  """One row of the result.

  Attributes:
    case: Name of the work and, with a lower precision, of that.
    runtime: Who does it.
  """

  case: str
  runtime: str


@dataclasses.dataclass(frozen=True)
class Goal:
  """A figure, or a ratio of two, and what it is meant to be.

  Attributes:
    name: What the result calls it, in the row of `numerator`.
    figure: Of a row: "wall_seconds", "peak_memory_bytes" or a
      `resident_memory_figure`.
    numerator: The row it belongs to.
    denominator: What that is compared with; `None` for the figure itself.
    denominator_figure: Of that row; `None` for the same one.
    scale: Factor of the denominator.
    at_most: Upper bound, if there is one.
    at_least: Lower bound, if there is one.
  """

  name: str
  figure: str
  numerator: Entry
  denominator: Entry | None = None
  denominator_figure: str | None = None
  scale: float = 1.0
  at_most: float | None = None
  at_least: float | None = None

  def evaluate(self, rows: Mapping[Entry, dict[str, Any]]) -> float | None:
    """The ratio, or `None` if not everything it needs was measured."""
    if self.numerator not in rows:
      return None
    value = rows[self.numerator][self.figure]
    if self.denominator is None:
      return value
    if self.denominator not in rows:
      return None
    figure = self.denominator_figure or self.figure
    return value / (self.scale * rows[self.denominator][figure])

  def verdict(self, value: float) -> str:
    """Says whether the goal was met."""
    if self.at_most is not None:
      met = value <= self.at_most
      return f"at most {self.at_most:g}: {'met' if met else 'MISSED'}"
    if self.at_least is not None:
      met = value >= self.at_least
      return f"at least {self.at_least:g}: {'met' if met else 'MISSED'}"
    return ""


def all_goals() -> Iterable[Goal]:
  """What the runtimes are meant to achieve."""
  wall, memory = "wall_seconds", "peak_memory_bytes"
  for case in ("lenet_10x20x20", "lenet_50x10x16"):
    yield Goal(
      "wall_in_process_to_bare",
      wall,
      Entry(case, "in_process"),
      Entry(case, "bare"),
      at_most=1.10,
    )
    yield Goal(
      "wall_tff_to_in_process",
      wall,
      Entry(case, "tff"),
      Entry(case, "in_process"),
    )
  case = "lenet_10x20x20"
  for suffix, bound in (("", 1.0), ("_mixed_bfloat16", 0.85)):
    yield Goal(
      "wall_in_process_to_pfl_research",
      wall,
      Entry(case + suffix, "in_process"),
      Entry(case, PFL_RESEARCH),
      at_most=bound,
    )
  for suffix in ("_bfloat16_math", "_mixed_bfloat16"):
    yield Goal(
      "wall_to_float32",
      wall,
      Entry(case + suffix, "in_process"),
      Entry(case, "in_process"),
    )
  for aggregator, speedup, peak in (
    ("gaussian", 6, 2.0e9),
    ("tree", 8, 2.8e9),
    ("blt", None, None),
  ):
    case = f"dense25m_4x1x16_{aggregator}"
    yield Goal(
      "wall_tff_to_in_process",
      wall,
      Entry(case, "tff"),
      Entry(case, "in_process"),
      at_least=speedup,
    )
    yield Goal(
      "peak_memory_bytes", memory, Entry(case, "in_process"), at_most=peak
    )
  case = "dense25m_4x1x16_gaussian"
  yield Goal(
    "wall_in_process_to_bare",
    wall,
    Entry(case, "in_process"),
    Entry(case, "bare"),
    at_most=1.5,
  )
  few, many = (
    Entry(f"lenet_{clients}x2x16_growth", "in_process")
    for clients in (GROWTH_CLIENTS[0], GROWTH_CLIENTS[-1])
  )
  yield Goal("peak_memory_1000_to_10_clients", memory, many, few, at_most=1.15)
  yield Goal(
    "wall_1000_to_100_times_10_clients",
    wall,
    many,
    few,
    scale=100.0,
    at_most=1.1,
  )
  for case in LARGE_MODELS:
    yield Goal(
      "wall_in_process_to_keras",
      wall,
      Entry(case, "in_process"),
      Entry(case, "keras"),
      at_most=1.15,
    )
    yield Goal(
      "peak_memory_bytes", memory, Entry(case, "in_process"), at_most=6.0e9
    )
  encoded, decoded = (Entry(case, "in_process") for case in PHOTOS)
  yield Goal("wall_encoded_to_decoded", wall, encoded, decoded, at_most=1.15)
  entry = Entry(LONG_RUN, "in_process")
  yield Goal(
    f"resident_{LONG_RUN_ROUNDS}_to_{LONG_RUN_SETTLED_ROUND}_rounds",
    resident_memory_figure(LONG_RUN_ROUNDS),
    entry,
    entry,
    resident_memory_figure(LONG_RUN_SETTLED_ROUND),
    at_most=1.05,
  )
