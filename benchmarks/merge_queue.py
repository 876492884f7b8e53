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

import numpy as np

from tff_fedemb.plots import figures

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
_CHUNKS_AHEAD = 4
_FAN_IN = 16


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
  sums_ahead: int = 4


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


def simulate(
  cluster: Cluster, chunk_seconds: Sequence[float], seed: int = 0
) -> Round:
  """Simulates a round.

  Args:
    cluster: Who takes part.
    chunk_seconds: How long each chunk takes, wherever it runs.
    seed: Of the deaths.
  """
  generator = np.random.default_rng(seed)
  num_chunks = len(chunk_seconds)
  share = cluster.fan_in**cluster.levels
  # What the program is sent: sums of chunks in a row.
  missing = collections.Counter(chunk // share for chunk in range(num_chunks))
  num_sums = len(missing)
  waiting = list(range(num_chunks))
  # Time, and what happens then to whom.
  events: list[tuple[float, str, int]] = [
    (0.0, "free", worker) for worker in range(cluster.workers)
  ]
  idle: list[int] = []
  ready: set[int] = set()
  arrived: set[int] = set()
  merged: list[int] = []
  now = 0.0
  most_waiting = deaths = 0
  is_merging = is_fetching = False
  while len(merged) < num_sums:
    now, event, number = heapq.heappop(events)
    if event == "free":
      idle.append(number)
    elif event == "done":
      missing[number // share] -= 1
      if not missing[number // share]:
        # Each level gets its sums one after the other.
        steps = cluster.levels * (cluster.fan_in - 1)
        cost = cluster.transfer_seconds + cluster.merge_seconds
        heapq.heappush(events, (now + steps * cost, "sum", number // share))
    elif event == "sum":
      ready.add(number)
    elif event == "lost":
      deaths += 1
      heapq.heappush(waiting, number)
    elif event == "arrived":
      is_fetching = False
      arrived.add(number)
      most_waiting = max(most_waiting, len(arrived))
    else:
      is_merging = False
      arrived.remove(number)
      merged.append(number)
    ahead = range(len(merged), min(len(merged) + cluster.sums_ahead, num_sums))
    wanted = [] if is_fetching else [n for n in ahead if n in ready]
    for number in wanted[:1]:
      is_fetching = True
      ready.remove(number)
      heapq.heappush(
        events, (now + cluster.transfer_seconds, "arrived", number)
      )
    if not is_merging and len(merged) in arrived:
      is_merging = True
      heapq.heappush(events, (now + cluster.merge_seconds, "", len(merged)))
    # As in `ray_chunks`: not all is to wait for what ends late.
    last = len(merged) * share + _CHUNKS_AHEAD * max(cluster.workers, share) + 2
    while idle and waiting and waiting[0] < last:
      worker, chunk = idle.pop(), heapq.heappop(waiting)
      end = now + chunk_seconds[chunk]
      death = now + generator.exponential(cluster.seconds_to_death)
      if death < end:
        heapq.heappush(events, (death, "lost", chunk))
        end = death + cluster.away_seconds
      else:
        heapq.heappush(events, (end, "done", chunk))
      heapq.heappush(events, (end, "free", worker))
  chunks = [
    chunk
    for number in merged
    for chunk in range(number * share, min((number + 1) * share, num_chunks))
  ]
  return Round(now, most_waiting, deaths, tuple(chunks))


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
  sizes = (10, 30, 100, 300, 1_000, 3_000, 10_000)
  for index, mean_seconds in enumerate((10, 100, 1000)):
    for levels in (0, 1):
      shares = []
      for workers in sizes:
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
      speed.plot(sizes, shares, label=name, **style)
  for index, sums_ahead in enumerate((Cluster.sums_ahead, None)):
    gigabytes = []
    for workers in sizes[:5]:
      seconds = draw_seconds(_CHUNKS_OF_WORKER * workers, 100.0)
      cluster = Cluster(workers=workers, sums_ahead=sums_ahead or len(seconds))
      most = simulate(cluster, seconds).most_waiting
      gigabytes.append(most * _GIGABYTES_OF_SUM)
    name = f"{sums_ahead} before their turn" if sums_ahead else "as they come"
    memory.plot(sizes[:5], gigabytes, label=name, **figures.style_of(index))
  print("GB at the program, if fetched as they come:", gigabytes)
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
