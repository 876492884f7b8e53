"""A Ray of this machine for tests, and faults of its workers."""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import tempfile
import threading
import time
from typing import Any

import psutil
import pytest
import tensorflow_federated as tff

from tff_fedemb.runtime import compiled_process
from tff_fedemb.runtime import ray as ray_runtime
from tff_fedemb.runtime import ray_cluster
from tff_fedemb.runtime import ray_map

CORES = 5
_PAUSE_SECONDS = 0.3


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


def stop_for_a_moment(process: psutil.Process) -> None:
  """Has all wait for what a process was given."""
  process.suspend()
  timer = threading.Timer(_PAUSE_SECONDS, process.resume)
  timer.daemon = True
  timer.start()


def wait_until(condition: Callable[[], bool]) -> None:
  """Waits for half a minute at most."""
  deadline = time.monotonic() + 30.0
  while not condition():
    assert time.monotonic() < deadline
    time.sleep(0.05)


def states_of_chunks(
  process: tff.templates.IterativeProcess, rounds: Sequence[Sequence[str]]
) -> list[list[Any]]:
  """Leaves of states, if this process folds the chunks one after the other."""
  compiled = compiled_process.CompiledProcess(process, concurrent_clients=2)

  def fold(prepared, client_ids, skip_fn):
    chunks = ray_runtime.deal(
      client_ids, clients_per_call=compiled.client_graphs.clients_per_call
    )
    # A round without clients has the sum of an empty chunk.
    first, *others = (
      compiled.fold(prepared, chunk, skip_fn) for chunk in chunks or [()]
    )
    accumulator, total = first
    for more, more_total in others:
      accumulator = compiled.merge(accumulator, more)
      total.merge(more_total)
    return accumulator, total

  states = [compiled.initialize()]
  for client_ids in rounds:
    states.append(compiled.next(states[-1], client_ids, fold_fn=fold)[0])
  compiled.close()
  return states


class Trouble:
  """Does something to a worker as soon as it has been given chunks of a round.

  Attributes:
    victims: The workers, one of each round.
  """

  def __init__(
    self,
    monkeypatch: pytest.MonkeyPatch,
    disturb: Callable[[psutil.Process], None],
  ):
    """Waits for rounds.

    Args:
      monkeypatch: Ends it.
      disturb: Is called with the worker.
    """
    self.victims: list[psutil.Process] = []
    ray = ray_cluster.import_ray()
    run, wait = ray_map.run_in_order, ray.wait
    rounds = []

    def run_round(*arguments, **options):
      rounds.append(arguments)
      return run(*arguments, **options)

    def disturb_and_wait(*arguments, **options):
      is_due = len(rounds) > len(self.victims)
      if is_due and options.get("fetch_local") is False:
        self.victims.append(find_victim())
        disturb(self.victims[-1])
      return wait(*arguments, **options)

    monkeypatch.setattr(ray_map, "run_in_order", run_round)
    monkeypatch.setattr(ray, "wait", disturb_and_wait)
