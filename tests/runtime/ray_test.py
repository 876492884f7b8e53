"""Tests of the runtime on a cluster: one of this machine, whose workers die."""

import importlib
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import threading

import numpy as np
import psutil
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tree
import yaml

from tests.runtime import builders
from tests.runtime import ray_trouble
from tff_fedemb import errors
from tff_fedemb import runtime
from tff_fedemb.runtime import client_error
from tff_fedemb.runtime import ray as ray_runtime
from tff_fedemb.runtime import ray_cluster
from tff_fedemb.runtime import ray_map
from tff_fedemb.runtime import secure_sums

ray = pytest.importorskip("ray")
jsonschema = pytest.importorskip("jsonschema")

# Their sum depends on the order; of different numbers, as of Poisson's.
_ROUNDS = tuple(
  [str(0.1 * 1.7**i) for i in range(number)] for number in (12, 5, 0, 9)
)


local_ray = ray_trouble.local_ray


@pytest.fixture(scope="module")
def process():
  return builders.build_private_means()


def _assert_identical(found, expected):
  tree.map_structure(np.testing.assert_array_equal, list(found), list(expected))


def test_bits_are_those_of_one_process(process, monkeypatch):
  expected = ray_trouble.states_of_chunks(process, _ROUNDS)
  put, objects = ray.put, []
  monkeypatch.setattr(ray, "put", lambda v: objects.append(v) or put(v))
  with runtime.create_runtime("ray", ray_workers=1) as started:
    state = started.initialize(process)
    _assert_identical(state.leaves, expected[0])
    for client_ids, expected_state in zip(_ROUNDS, expected[1:], strict=True):
      state, metrics = started.next(state, client_ids)
      assert metrics[1] == len(client_ids)
      _assert_identical(state.leaves, expected_state)
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


@pytest.mark.slow
def test_gives_up_a_chunk_that_takes_worker_after_worker(process, monkeypatch):
  monkeypatch.setattr(ray_map, "_ATTEMPTS", 1)
  with runtime.create_runtime("ray", ray_workers=1) as started:
    state = started.initialize(process)
    killer = threading.Timer(1.0, lambda: ray_trouble.find_victim().kill())
    killer.start()
    with pytest.raises(
      ray_map.LostChunkError,
      match=r"chunk of client '-1' must not end its worker, found 1 workers"
      " that died.*same command goes on",
    ):
      started.next(state, ["1", builders.STUCK_CLIENT_ID, "2"])
    killer.join()
    monkeypatch.undo()
    # Nothing is left of that round.
    state, metrics = started.next(state, _ROUNDS[0])
    assert metrics[1] == len(_ROUNDS[0])
    _assert_identical(
      state.leaves, ray_trouble.states_of_chunks(process, _ROUNDS[:1])[1]
    )


@pytest.mark.slow
def test_clients_that_fail(process):
  with runtime.create_runtime("ray", ray_workers=1) as started:
    state = started.initialize(process)
    with pytest.raises(
      client_error.ClientError, match="'x' failed: Inval"
    ) as caught:
      started.next(state, ["1", "x", "2", "y"])
    assert caught.value.client_id == "x"
  with runtime.create_runtime(
    "ray", ray_workers=1, on_client_error="skip", ray_clients_per_chunk=2
  ) as started:
    state = started.initialize(process)
    _, ((mean,), count) = started.next(state, ["x", "3", "y", "z", "20"])
    assert (mean.item(), count) == ((3.0 + 10.0) / 4, 2)
    assert [e.client_id for e in started.skipped_clients] == ["x", "y", "z"]


@tff.tensorflow.computation(np.str_)
def _number(client_id):
  return tf.strings.to_number(client_id, tf.int32)


@pytest.mark.slow
def test_secure_sums_of_those_who_last():
  process = builders.build_sums(
    _number, sum_fn=lambda v: tff.federated_secure_sum_bitwidth(v, 10)
  )
  with runtime.create_runtime(
    "ray", ray_workers=1, on_client_error="skip", secure_sum_threshold=0.75
  ) as started:
    state = started.initialize(process)
    _, total = started.next(state, ["1", "20", "300", "x"])
    assert total == 321
    with pytest.raises(
      secure_sums.TooFewSurvivorsError, match="that last, 2 of 4"
    ):
      started.next(state, ["1", "x", "300", "x"])


_PROGRAM = """
import sys, time
from tests.runtime import builders
from tff_fedemb import runtime
with runtime.create_runtime("ray", ray_workers=1) as started:
  state = started.initialize(builders.build_private_means())
  started.next(state, ["1"])
  print("begun", flush=True)
  while sys.argv[1] == "head":
    started.next(state, ["1"] * 20)
  time.sleep(600)
"""


_BEGIN_SECONDS = 180.0


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["program", "head"])
def test_nothing_is_left_when_all_is_killed(tmp_path, victim):
  root = pathlib.Path(__file__).resolve().parents[2]
  # As short as names of sockets have to be.
  with (
    tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as directory,
    open(tmp_path / "log", "w") as log,
  ):
    process = subprocess.Popen(
      [sys.executable, "-c", _PROGRAM, victim],
      cwd=root,
      env={**os.environ, "TMPDIR": directory, "PYTHONFAULTHANDLER": "1"},
      stdout=subprocess.PIPE,
      stderr=log,
      text=True,
    )
    if not select.select([process.stdout], [], [], _BEGIN_SECONDS)[0]:
      # It tells where each of its threads waits.
      process.send_signal(signal.SIGABRT)
      process.wait()
      pytest.fail((tmp_path / "log").read_text())
    assert process.stdout.readline() == "begun\n"
    assert os.listdir(directory)
    workers = psutil.Process(process.pid).children(recursive=True)
    assert any(w.name().startswith("ray::") for w in workers)
    if victim == "program":
      process.kill()
      process.wait()
    else:
      (head,) = [w for w in workers if "gcs_server" in w.name()]
      head.kill()
      assert process.wait(timeout=120) != 0
      assert (
        "ray_cluster.HeadLostError: the head of the Ray cluster"
        in (tmp_path / "log").read_text()
      )
    _, alive = psutil.wait_procs(workers, timeout=60)
    # Orphans may stay zombies: who inherits them need not take notice.
    alive = [w for w in alive if w.status() != psutil.STATUS_ZOMBIE]
    assert not alive
    with pytest.MonkeyPatch.context() as patch:
      patch.setattr(tempfile, "tempdir", directory)
      ray_cluster.remove_leftovers()
    # Nothing is left of any Ray; TensorFlow leaves files when it is killed.
    assert not [*pathlib.Path(directory).glob("ray*")]


@pytest.mark.parametrize(
  ("number", "of_call", "sizes"),
  [
    (0, 1, []),
    (7, 1, [1] * 7),
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
  ("cores", "gpus", "machine", "number"),
  [
    (1, 0.0, {"CPU": 3.0}, 3),
    (2, 0.0, {"CPU": 3.0}, 1),
    (4, 0.0, {"CPU": 3.0}, 0),
    (1, 1.0, {"CPU": 8.0, "GPU": 2.0}, 2),
    # Three tenths of a GPU are no room for a fourth worker.
    (1, 0.3, {"CPU": 8.0, "GPU": 2.0}, 6),
    (4, 0.5, {"CPU": 8.0, "GPU": 2.0}, 2),
  ],
)
def test_workers_of_a_machine(cores, gpus, machine, number):
  found = ray_cluster.count_workers(machine, cores=cores, gpus=gpus)
  assert found == number


@pytest.mark.parametrize(
  ("options", "message"),
  [
    (
      {"ray_worker_cores": 64},
      "ray_worker_cores must leave room for a worker on a machine of the"
      r" cluster, found 64 cores .* cluster of 1 machine, cores 5, GPUs 0\.",
    ),
    ({"ray_worker_gpus": 0.5}, "ray_worker_gpus must leave room for a worker"),
    ({"ray_workers": 6}, "ray_workers must be at most the 5 that"),
    ({"runtime": "tff", "ray_workers": 1}, "be given with runtime ray"),
  ],
)
def test_what_the_cluster_cannot_give_is_refused(options, message):
  with pytest.raises(errors.FieldError, match=message):
    runtime.RuntimeConfig(**{"runtime": "ray"} | options).create()


def test_where_there_is_no_cluster_or_no_ray(monkeypatch):
  monkeypatch.setattr(ray, "is_initialized", lambda: False)
  for address, message in (
    ("localhost", "invalid literal"),
    ("127.0.0.1:1", "refused"),
  ):
    with pytest.raises(errors.FieldError, match=f"ray_address .*{message}"):
      runtime.create_runtime("ray", ray_address=address)
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


def test_file_for_clouds_is_of_rays_schema():
  root = pathlib.Path(__file__).resolve().parents[2]
  schema = pathlib.Path(ray.__file__).parent / "autoscaler/ray-schema.json"
  found = yaml.safe_load((root / "cluster/aws.yaml").read_text())
  jsonschema.validate(found, json.loads(schema.read_text()))
  pods = yaml.safe_load((root / "cluster/kuberay.yaml").read_text())
  assert pods["spec"]["rayVersion"] == ray.__version__
  # Its schema is not at hand: names that have to agree.
  (workers,) = pods["spec"]["workerGroupSpecs"]
  assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
  for group in (pods["spec"]["headGroupSpec"], workers):
    pod = group["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "IMAGE"
    assert {mount["name"] for mount in container["volumeMounts"]} == {
      volume["name"] for volume in pod["volumes"]
    }
