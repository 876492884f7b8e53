"""A Ray of this machine for tests, and faults of its workers."""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import tempfile
import time

import psutil
import pytest
import tensorflow_federated as tff

from tff_fedemb import runtime
from tff_fedemb.runtime import base
from tff_fedemb.runtime import in_process
from tff_fedemb.runtime import ray as ray_runtime
from tff_fedemb.runtime import ray_cluster

CORES = 5


@pytest.fixture(scope="module", autouse=True)
def local_ray() -> Iterator[None]:
  """A Ray that the runtimes of a file share; starting one takes seconds."""
  # As short as names of sockets have to be.
  with tempfile.TemporaryDirectory(
    prefix="r", dir="/tmp", ignore_cleanup_errors=True
  ) as directory:
    ray = ray_cluster.import_ray()
    ray.init(
      address="local",
      num_cpus=CORES,
      include_dashboard=False,
      log_to_driver=False,
      _temp_dir=directory,
      _system_config={"enable_worker_prestart": False, "worker_niceness": 0},
    )
    yield
    ray.shutdown()


def find_workers() -> list[psutil.Process]:
  """Returns the workers that are idle or were given something to do."""
  found = []
  for child in psutil.Process().children(recursive=True):
    with contextlib.suppress(psutil.NoSuchProcess):
      if child.name().startswith(("ray::IDLE", "ray::fold")):
        found.append(child)
  return found


def find_victim() -> psutil.Process:
  """One worker, rather one that is busy."""
  return min(find_workers(), key=lambda worker: worker.name() == "ray::IDLE")


def wait_until(condition: Callable[[], bool]) -> None:
  """Waits for half a minute at most."""
  deadline = time.monotonic() + 30.0
  while not condition():
    assert time.monotonic() < deadline
    time.sleep(0.05)


class _Chunked(in_process.InProcessRuntime):
  """Folds the chunks of a round one after the other."""

  def _fold_clients(self, prepared, client_ids):
    chunks = ray_runtime.deal(
      client_ids, clients_per_call=self._client_graphs.clients_per_call
    )
    # A round without clients has the sum of an empty chunk.
    first, *others = (
      super(_Chunked, self)._fold_clients(prepared, chunk)
      for chunk in chunks or [()]
    )
    accumulator, total = first
    for leaves, more in others:
      accumulator = self._server["merge"](accumulator, leaves)
      total.add(more.totals, num_clients=more.num_survivors)
    return accumulator, total


def run(
  started: base.Runtime,
  process: tff.templates.IterativeProcess,
  rounds: Sequence[Sequence[str]],
) -> list[in_process.FlatState]:
  """Returns the states before and after each round."""
  state = started.initialize(process)
  states = [state]
  for client_ids in rounds:
    state, _ = started.next(state, client_ids)
    states.append(state)
  return states


def states_of_chunks(
  process: tff.templates.IterativeProcess, rounds: Sequence[Sequence[str]]
) -> list[in_process.FlatState]:
  """As `run`, if this process folds the chunks one after the other."""
  with _Chunked(runtime.RuntimeConfig(concurrent_clients=2)) as started:
    return run(started, process, rounds)


class Killer:
  """Kills a worker as soon as it has been given chunks of a round.

  Attributes:
    victims: The workers, one of each round.
  """

  def __init__(self, monkeypatch: pytest.MonkeyPatch):
    """Waits for rounds, until `monkeypatch` ends it."""
    self.victims: list[psutil.Process] = []
    ray = ray_cluster.import_ray()
    run, wait = ray_cluster.Cluster.run_in_order, ray.wait
    rounds = []

    def run_round(*arguments, **options):
      rounds.append(arguments)
      return run(*arguments, **options)

    def kill_and_wait(*arguments, **options):
      if len(rounds) > len(self.victims):
        self.victims.append(find_victim())
        self.victims[-1].kill()
      return wait(*arguments, **options)

    monkeypatch.setattr(ray_cluster.Cluster, "run_in_order", run_round)
    monkeypatch.setattr(ray, "wait", kill_and_wait)
