"""When does the program that adds up chunks become the limit of a cluster?

  python -m benchmarks.merge_queue PICTURE

Simulates rounds of `--runtime=ray` with made-up times: workers take chunks in
their order, die now and then, and keep sums until the program, which adds them
up in the order of the chunks, fetches them one after the other. In a tree,
workers add up the sums of `fan_in` chunks in a row, or of as many such sums,
before the program fetches any. For docs/scale.md.
"""

import collections
from collections.abc import Sequence
import dataclasses
import heapq
import sys
from typing import Any

import numpy as np

from tff_fedemb.plots import figures
from tff_fedemb.runtime import ray_chunks

# 25 million float32, over 10 Gb/s; added up on a core of its own.
_GIGABYTES_OF_SUM = 0.1
_TRANSFER_SECONDS, _MERGE_SECONDS = 0.08, 0.02
# A machine is away for a minute once a day.
_SECONDS_TO_DEATH, _AWAY_SECONDS = 86_400.0, 60.0
# Of the logarithm of a client's time.
_SPREAD = 0.75
_CHUNKS_OF_WORKER = 4
# 131,072 users in virtual clients of 32; 256 GPUs took 8 days for 800 rounds.
_NUM_CLIENTS = 4_096
_CLIENT_SECONDS = 54.0
_FAN_IN = 16
# Workers of the clusters that are drawn.
_SIZES = (10, 30, 100, 300, 1_000, 3_000, 10_000)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
  """What a round is simulated of.

  Attributes:
    workers: How many there are; each runs one chunk at a time.
    transfer_seconds: For a sum to reach the program, or another worker.
    merge_seconds: For two sums to be added up.
    seconds_to_death: Of a worker at work, the mean.
    away_seconds: Until it is back.
    levels: Of the tree; 0 if the program adds up all sums.
    fan_in: Sums that are added up at a time.
    sums_ahead: Sums that the program fetches before their turn.
  """

  workers: int
  transfer_seconds: float = _TRANSFER_SECONDS
  merge_seconds: float = _MERGE_SECONDS
  seconds_to_death: float = _SECONDS_TO_DEATH
  away_seconds: float = _AWAY_SECONDS
  levels: int = 0
  fan_in: int = _FAN_IN
  sums_ahead: int = ray_chunks.SUMS_AHEAD


@dataclasses.dataclass(frozen=True)
class Round:
  """What came of a round.

  Attributes:
    seconds: How long it took.
    most_waiting: Sums that the program held at the same time, at most.
    deaths: Of workers.
    merged: Chunks in what the program has added up, in this order.
  """

  seconds: float
  most_waiting: int
  deaths: int
  merged: tuple[int, ...]


class _Simulation:
  """A round at a time: what is with whom, and what happens next."""

  def __init__(
    self, cluster: Cluster, chunk_seconds: Sequence[float], seed: int
  ):
    self._cluster = cluster
    self._seconds = chunk_seconds
    self._generator = np.random.default_rng(seed)
    # Chunks of a sum that the program is sent: some in a row.
    self._share = cluster.fan_in**cluster.levels
    self._missing = collections.Counter(
      chunk // self._share for chunk in range(len(chunk_seconds))
    )
    self._num_sums = len(self._missing)
    self._waiting = list(range(len(chunk_seconds)))
    # Time, and what happens then to whom.
    self._events: list[tuple[float, str, int]] = [
      (0.0, "free", worker) for worker in range(cluster.workers)
    ]
    self._now = 0.0
    self._idle: list[int] = []
    self._ready: set[int] = set()
    self._arrived: set[int] = set()
    self._merged: list[int] = []
    self._is_merging = self._is_fetching = False
    self._most_waiting = self._deaths = 0

  def run(self) -> Round:
    while len(self._merged) < self._num_sums:
      self._now, event, number = heapq.heappop(self._events)
      self._happen(event, number)
      self._fetch()
      self._merge()
      self._deal()
    chunks = [
      chunk
      for number in self._merged
      for chunk in range(number * self._share, (number + 1) * self._share)
      if chunk < len(self._seconds)
    ]
    return Round(self._now, self._most_waiting, self._deaths, tuple(chunks))

  def _plan(self, seconds: float, event: str, number: int) -> None:
    heapq.heappush(self._events, (self._now + seconds, event, number))

  def _happen(self, event: str, number: int) -> None:
    """What an event changes; numbers are of a worker, a chunk or a sum."""
    if event == "free":
      self._idle.append(number)
    elif event == "done":
      self._finish_chunk(number // self._share)
    elif event == "lost":
      self._deaths += 1
      heapq.heappush(self._waiting, number)
    elif event == "sum":
      self._ready.add(number)
    elif event == "arrived":
      self._is_fetching = False
      self._arrived.add(number)
      self._most_waiting = max(self._most_waiting, len(self._arrived))
    else:
      self._is_merging = False
      self._arrived.remove(number)
      self._merged.append(number)

  def _finish_chunk(self, number: int) -> None:
    """Has workers add up the chunks of a sum, once all are there."""
    self._missing[number] -= 1
    if not self._missing[number]:
      cluster = self._cluster
      # Each level gets its sums one after the other.
      steps = cluster.levels * (cluster.fan_in - 1)
      cost = cluster.transfer_seconds + cluster.merge_seconds
      self._plan(steps * cost, "sum", number)

  def _fetch(self) -> None:
    """Has the program fetch a sum, if it is time for one that is ready."""
    first = len(self._merged)
    last = min(first + self._cluster.sums_ahead, self._num_sums)
    wanted = [n for n in range(first, last) if n in self._ready]
    if wanted and not self._is_fetching:
      self._is_fetching = True
      self._ready.remove(wanted[0])
      self._plan(self._cluster.transfer_seconds, "arrived", wanted[0])

  def _merge(self) -> None:
    """Has the program add up the next sum, if it is there."""
    number = len(self._merged)
    if not self._is_merging and number in self._arrived:
      self._is_merging = True
      self._plan(self._cluster.merge_seconds, "merged", number)

  def _deal(self) -> None:
    """Gives chunks to idle workers; not all is to wait for what ends late."""
    ahead = ray_chunks.CHUNKS_AHEAD * max(self._cluster.workers, self._share)
    last = len(self._merged) * self._share + ahead + 2
    while self._idle and self._waiting and self._waiting[0] < last:
      worker, chunk = self._idle.pop(), heapq.heappop(self._waiting)
      seconds = self._seconds[chunk]
      death = self._generator.exponential(self._cluster.seconds_to_death)
      if death < seconds:
        self._plan(death, "lost", chunk)
        seconds = death + self._cluster.away_seconds
      else:
        self._plan(seconds, "done", chunk)
      self._plan(seconds, "free", worker)


def simulate(
  cluster: Cluster, chunk_seconds: Sequence[float], seed: int = 0
) -> Round:
  """Simulates a round.

  Args:
    cluster: Who takes part.
    chunk_seconds: How long each chunk takes, wherever it runs.
    seed: Of the deaths.
  """
  return _Simulation(cluster, chunk_seconds, seed).run()


def draw_seconds(
  num_chunks: int, mean_seconds: float, seed: int = 0
) -> list[float]:
  """Draws heavy-tailed times of chunks, log-normal, with a mean."""
  generator = np.random.default_rng(seed)
  normal = generator.normal(-(_SPREAD**2) / 2, _SPREAD, size=num_chunks)
  return (mean_seconds * np.exp(normal)).tolist()


def _print_largest_round() -> None:
  """Prints rounds of the largest run of Xu et al. 2023."""
  seconds = np.array(draw_seconds(_NUM_CLIENTS, _CLIENT_SECONDS))
  for workers in (256, 1_000):
    print(f"{workers} workers without limit: {seconds.sum() / workers:.0f} s")
    for clients_per_chunk in (16, 8, 4, 2, 1):
      chunks = seconds.reshape(-1, clients_per_chunk).sum(axis=1).tolist()
      found = [
        simulate(Cluster(workers=workers, levels=levels), chunks).seconds
        for levels in (0, 1)
      ]
      print(
        f"{workers} workers, {clients_per_chunk} clients a chunk:"
        f" {found[0]:.0f} s, with a tree {found[1]:.0f} s"
      )


def _plot_speed(axes: Any) -> None:
  """Draws how far the program is the limit, with and without a tree."""
  for index, mean_seconds in enumerate((10, 100, 1000)):
    for levels in (0, 1):
      shares = []
      for workers in _SIZES:
        seconds = draw_seconds(_CHUNKS_OF_WORKER * workers, mean_seconds)
        # Without a program that adds up.
        free = Cluster(workers=workers, transfer_seconds=0.0, merge_seconds=0.0)
        found = simulate(Cluster(workers=workers, levels=levels), seconds)
        shares.append(simulate(free, seconds).seconds / found.seconds)
        print(
          f"{mean_seconds} s a chunk, {workers} workers, {levels} levels:"
          f" {found.seconds:.0f} s, {shares[-1]:.2f} of the speed without"
          f" limit, {found.deaths} deaths"
        )
      style = figures.style_of(index, linestyle="--" if levels else "-")
      name = f"{mean_seconds:,} s a chunk{', tree' if levels else ''}"
      axes.plot(_SIZES, shares, label=name, **style)


def _plot_memory(axes: Any) -> None:
  """Draws what the program holds, by how many sums it fetches early."""
  sizes = _SIZES[:5]
  for index, sums_ahead in enumerate((Cluster.sums_ahead, None)):
    gigabytes = []
    for workers in sizes:
      seconds = draw_seconds(_CHUNKS_OF_WORKER * workers, 100.0)
      cluster = Cluster(workers=workers, sums_ahead=sums_ahead or len(seconds))
      most = simulate(cluster, seconds).most_waiting
      gigabytes.append(most * _GIGABYTES_OF_SUM)
    name = f"{sums_ahead} before their turn" if sums_ahead else "as they come"
    axes.plot(sizes, gigabytes, label=name, **figures.style_of(index))
  print("GB at the program, if fetched as they come:", gigabytes)


def main(path: str) -> None:
  """Prints and draws rounds of many sizes."""
  _print_largest_round()
  figure, ((speed, memory),) = figures.create_figure(
    10,
    4.5,
    (1, 2),
    statement=(
      f"{_CHUNKS_OF_WORKER} chunks a worker, of log-normal times (sigma"
      f" {_SPREAD}; on the right mean 100 s); sums of {_GIGABYTES_OF_SUM:g} GB,"
      f" received in {_TRANSFER_SECONDS} s and added up in {_MERGE_SECONDS} s;"
      f" workers die once a day. Trees of {_FAN_IN}. Simulated."
    ),
  )
  _plot_speed(speed)
  _plot_memory(memory)
  for axes, title, label in (
    (speed, "Speed", "share of the speed without limit"),
    (memory, "Memory", "GB of fetched sums, at most"),
  ):
    figures.decorate(axes, title=title, x_label="workers", y_label=label)
    axes.set_xscale("log")
    axes.legend(fontsize=8)
  memory.set_yscale("log")
  figures.write(figure, path)


if __name__ == "__main__":
  main(sys.argv[1])
