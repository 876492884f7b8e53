"""Tests of the runtime on a cluster: one of this machine, whose workers die."""

import importlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
from unittest import mock

import numpy as np
import psutil
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.runtime import builders
from tests.runtime import ray_trouble
from tff_fedemb import errors
from tff_fedemb import runtime
from tff_fedemb.runtime import client_error
from tff_fedemb.runtime import ray as ray_runtime
from tff_fedemb.runtime import ray_cluster
from tff_fedemb.runtime import secure_sums

ray = pytest.importorskip("ray")

# Their sum depends on the order; of different numbers, as of Poisson's.
_ROUNDS = tuple(
  [str(0.1 * 1.7**i) for i in range(number)] for number in (12, 5, 0, 9)
)


local_ray = ray_trouble.local_ray


def test_bits_are_those_of_one_process(process, monkeypatch):
  expected = ray_trouble.states_of_chunks(process, _ROUNDS)
  put, objects = ray.put, []
  monkeypatch.setattr(ray, "put", lambda v: objects.append(v) or put(v))
  with runtime.create_runtime("ray", ray_workers=1) as started:
    np.testing.assert_equal(
      ray_trouble.run(started, process, _ROUNDS), expected
    )
  # The graphs, and the model once a round.
  assert len(objects) == 1 + len(_ROUNDS)
  # A Ray that is somebody else's keeps its processes.
  ray_trouble.wait_until(
    lambda: {w.name() for w in ray_trouble.find_workers()} == {"ray::IDLE"}
  )


def test_workers_do_without_tff():
  # Which takes a quarter of their start, and memory.
  @ray.remote
  def find(name):
    importlib.import_module("tff_fedemb.runtime.ray_worker")
    return name in sys.modules

  names = ("tensorflow", "tensorflow_federated")
  assert ray.get([find.remote(name) for name in names]) == [True, False]


def test_no_chunk_is_left_out_while_there_are_no_machines(monkeypatch):
  cluster = ray_cluster.Cluster(runtime.RuntimeConfig(runtime="ray"))
  monkeypatch.setattr(cluster, "ray", mock.Mock())
  cluster.ray.nodes.return_value = []
  cluster.ray.wait = lambda references, **_: (references, [])
  cluster.ray.get = lambda references, **_: [2 * r for r in references]
  results = cluster.run_in_order(lambda chunk: [chunk], range(9))
  assert [*results] == [[2 * chunk] for chunk in range(9)]


def test_map_without_a_cluster():
  with runtime.RuntimeConfig().open_map() as map_fn:
    assert [*map_fn(abs, [-1, 2])] == [1, 2]
  with pytest.raises(
    errors.FieldError, match=r"runtime must be in_process or ray .*, found tff"
  ):
    runtime.RuntimeConfig(runtime="tff").open_map()


@pytest.mark.slow
def test_results_of_a_map_are_in_order_whoever_dies(tmp_path):
  read = []

  def read_chunks():
    for chunk in range(12):
      read.append(chunk)
      yield chunk

  def square(chunk):
    path = tmp_path / str(chunk)
    if chunk == 5 and not path.exists():
      path.touch()
      os.kill(os.getpid(), signal.SIGKILL)
    if chunk == 100:
      os.kill(os.getpid(), signal.SIGKILL)
    if chunk < 0:
      raise errors.FieldError("saved_model", "be there", chunk)
    return chunk**2

  config = runtime.RuntimeConfig(runtime="ray", ray_workers=1)
  with config.open_map() as map_fn:
    results = map_fn(square, read_chunks())
    assert next(results) == 0
    # Not all of many images are in memory.
    assert len(read) <= 3
    assert [*results] == [chunk**2 for chunk in range(1, 12)]
    with pytest.raises(errors.FieldError, match="be there, found -1"):
      [*map_fn(square, [-1])]
    with pytest.raises(errors.DataError, match="4 workers that died"):
      [*map_fn(square, [100])]


@pytest.mark.slow
def test_gives_up_a_chunk_that_takes_worker_after_worker(process, monkeypatch):
  monkeypatch.setattr(ray_cluster, "_ATTEMPTS", 1)
  with runtime.create_runtime("ray", ray_workers=1) as started:
    state = started.initialize(process)
    killer = threading.Timer(1.0, lambda: ray_trouble.find_victim().kill())
    killer.start()
    with pytest.raises(
      errors.DataError,
      match=r"chunk of client '-1' must not end its worker, found 1 workers"
      " that died.*same command goes on",
    ):
      started.next(state, ["1", builders.STUCK_CLIENT_ID, "2"])
    killer.join()
    monkeypatch.undo()
    # Nothing is left of that round.
    found = ray_trouble.run(started, process, _ROUNDS[:1])
  expected = ray_trouble.states_of_chunks(process, _ROUNDS[:1])
  np.testing.assert_equal(found, expected)


@pytest.mark.slow
def test_names_a_client_that_fails(process):
  with runtime.create_runtime("ray", ray_workers=1) as started:
    state = started.initialize(process)
    with pytest.raises(
      client_error.ClientError, match="'x' failed: Inval"
    ) as caught:
      started.next(state, ["1", "x", "2", "y"])
    assert caught.value.client_id == "x"


@tff.tensorflow.computation(np.str_)
def _number(client_id):
  return tf.strings.to_number(client_id, tf.int32)


@pytest.mark.slow
def test_secure_sums_of_those_who_last():
  process = builders.build_sums(
    _number, sum_fn=lambda v: tff.federated_secure_sum_bitwidth(v, 10)
  )
  options = {"ray_workers": 1, "ray_clients_per_chunk": 2}
  with runtime.create_runtime(
    "ray", **options, on_client_error="skip", secure_sum_threshold=0.6
  ) as started:
    state = started.initialize(process)
    _, total = started.next(state, ["x", "1", "20", "y", "300"])
    assert total == 321
    assert [e.client_id for e in started.skipped_clients] == ["x", "y"]
    with pytest.raises(
      secure_sums.TooFewSurvivorsError, match="that last, 2 of 4"
    ):
      started.next(state, ["1", "x", "300", "x"])


_PROGRAM = """
import time
from tests.runtime import builders
from tff_fedemb import runtime
with runtime.create_runtime("ray", ray_workers=1) as started:
  state = started.initialize(builders.build_private_means())
  started.next(state, ["1"])
  print("begun", flush=True)
  while True:
    started.next(state, ["1"] * 20)
"""


def _kill_part(victim, log_path):
  """Kills a program in its first round, or the head of its cluster.

  Returns:
    The program's process, the others of its session, and their names.
  """
  with open(log_path, "w") as log:
    process = subprocess.Popen(
      [sys.executable, "-c", _PROGRAM],
      cwd=pathlib.Path(__file__).resolve().parents[2],
      stdout=subprocess.PIPE,
      stderr=log,
      text=True,
    )
  assert process.stdout.readline() == "begun\n"
  children = psutil.Process(process.pid).children(recursive=True)
  names = {child.pid: child.name() for child in children}
  assert any(name.startswith("ray::") for name in names.values())
  if victim == "program":
    process.kill()
  else:
    (head,) = [child for child in children if "gcs_server" in child.name()]
    head.kill()
  return process, children, names


@pytest.mark.slow
def test_nothing_runs_on_when_program_or_head_is_killed(tmp_path):
  victims = ("program", "head")
  # Both of them first, as each one's agents take a minute to end.
  killed = [_kill_part(victim, tmp_path / victim) for victim in victims]
  for victim, (process, children, names) in zip(victims, killed, strict=True):
    # Ray itself ends a program whose head is gone.
    assert process.wait(timeout=120) != 0
    # Ray's agents try for a constant 60 s to tell the head of its own end. They
    # compute nothing; all others end at once.
    agents = [c for c in children if names[c.pid].endswith("Agent")]
    others = [child for child in children if child not in agents]
    for processes, seconds in ((others, 30), (agents, 90)):
      _, alive = psutil.wait_procs(processes, timeout=seconds)
      # Orphans may stay zombies: who inherits them need not take notice.
      assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]
    text = (tmp_path / victim).read_text()
    assert ("The program will terminate" in text) == (victim == "head")


@pytest.mark.parametrize(
  ("number", "of_call", "sizes"),
  [
    (0, 1, []),
    # Two, and at the end one: workers are to end at about the same time.
    (130, 1, [2] * 64 + [1, 1]),
    # A small model has as many as a call takes, if there are enough.
    (11, 4, [1] * 11),
    (50, 4, [4] * 11 + [2, 2, 1, 1]),
    (1000, 4, [15] * 65 + [5, 7, 7, 3, 3]),
  ],
)
def test_chunks_depend_on_the_number_of_clients_alone(number, of_call, sizes):
  clients = [str(i) for i in range(number)]
  chunks = ray_runtime.deal(clients, clients_per_call=of_call)
  assert [len(chunk) for chunk in chunks] == sizes
  assert [c for chunk in chunks for c in chunk] == clients
  # Or as large as is asked for.
  assert ray_runtime.deal("abcdefg", 3) == ["abc", "def", "g"]


@pytest.mark.parametrize(
  ("options", "machine", "number"),
  [
    ({}, {"CPU": 3.0}, 3),
    ({"ray_worker_cores": 2}, {"CPU": 3.0}, 1),
    ({"ray_worker_gpus": 1.0}, {"CPU": 8.0, "GPU": 2.0}, 2),
    # Three tenths of a GPU are no room for a fourth worker.
    ({"ray_worker_gpus": 0.3}, {"CPU": 8.0, "GPU": 2.0}, 6),
    ({"ray_worker_gpus": 0.25}, {"CPU": 8.0, "GPU": 2.0}, 8),
    ({"ray_worker_gpus": 2}, {"CPU": 8.0, "GPU": 5.0}, 2),
    ({"ray_workers": 2}, {"CPU": 3.0}, 2),
  ],
)
def test_workers_of_two_machines(monkeypatch, options, machine, number):
  node = {"Resources": machine, "Alive": True}
  monkeypatch.setattr(ray, "nodes", lambda: [node, {"Alive": False}])
  config = runtime.RuntimeConfig(runtime="ray", **options)
  assert ray_cluster.Cluster(config).count_workers() == number


@pytest.mark.parametrize(
  ("options", "message"),
  [
    (
      {"ray_worker_cores": 64},
      "ray_workers must be at most the 0 that the cluster has room for, with 64"
      r" cores and 0 GPUs each, found 1\.",
    ),
    ({"ray_worker_gpus": 0.5}, "at most the 0 that"),
    # Ray has no such parts of a GPU.
    ({"ray_worker_gpus": 1.5}, "ray_worker_gpus must be a whole .* found 1.5"),
    ({"ray_worker_gpus": 1e-5}, "or from 0.0001 to 1"),
    ({"ray_workers": 6}, "ray_workers must be at most the 5 that"),
    (
      {"ray_address": "localhost"},
      "ray_address must be auto, or HOST:PORT .*localhost: invalid literal",
    ),
    ({"ray_address": "127.0.0.1:1"}, "ray_address .* refused"),
    ({"runtime": "tff", "ray_workers": 1}, "be given with runtime ray"),
  ],
)
def test_what_the_cluster_cannot_give_is_refused(monkeypatch, options, message):
  if "ray_address" in options:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
  with pytest.raises(errors.FieldError, match=message):
    runtime.RuntimeConfig(**{"runtime": "ray"} | options).create()


def test_without_ray_it_says_what_installs_it(monkeypatch):
  monkeypatch.setitem(sys.modules, "ray", None)
  with pytest.raises(errors.FieldError, match="`make setup RAY=1` installs it"):
    runtime.create_runtime("ray")


@pytest.mark.slow
def test_data_must_be_seen_by_workers(process, tmp_path):
  with runtime.create_runtime("ray", ray_workers=1) as started:
    started.require_paths({"data_dir": str(tmp_path / "missing")})
    with pytest.raises(
      errors.FieldError,
      match=r"data_dir must be at a path that every machine .*missing on",
    ):
      started.initialize(process)
