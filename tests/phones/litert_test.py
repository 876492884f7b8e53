"""Tests of clients that run the file for phones, in processes of their own."""

import collections
import dataclasses
import functools
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tests.algorithms import builders
from tests.binaries import programs
from tff_fedemb import errors
from tff_fedemb import runtime as runtimes
from tff_fedemb.algorithms import learning_process
from tff_fedemb.algorithms import local_training
from tff_fedemb.models import heads
from tff_fedemb.phones import client_file
from tff_fedemb.phones import deltas
from tff_fedemb.phones import litert
from tff_fedemb.phones import tensor_files
from tff_fedemb.records import chain as chain_lib
from tff_fedemb.runtime import client_error

pytest.importorskip("ai_edge_litert")

_SHAPE, _DIM, _CLIP_NORM = (4, 4, 1), 3, 0.5
_NUM_BAD = 1000


def _create_dataset(client_id):
  """Five examples of two classes, or of a client called 0, none."""
  images, labels = builders.create_examples(client_id, _SHAPE, 5, 2)
  end = tf.where(tf.equal(client_id, "0"), 0, 5)
  return tf.data.Dataset.from_tensors(
    collections.OrderedDict(x=images[:end], y=7 * labels[:end])
  )


@pytest.fixture(name="processes", scope="module")
def _processes():
  """One of ordinary clients, and one of phones."""
  config = local_training.ClientTraining(
    learning_rate=0.5, batch_size=2, rounds=4
  )
  options = {
    "aggregator": builders.create_aggregator(
      "clip_only", clip_norm=_CLIP_NORM, clients_per_round=4
    ),
    "server_optimizer": tff.learning.optimizers.build_sgdm(1.0, 0.9),
    "training": config,
    "seed": 3,
  }
  build = functools.partial(builders.build_process, _SHAPE, **options)
  file = client_file.ClientFile(
    create_backbone_fn=functools.partial(builders.create_backbone, _SHAPE),
    head=heads.LinearHead(),
    config=config,
    clip_norm=_CLIP_NORM,
    seed=3,
    spec_digest="abc",
  )
  return (
    builders.compose(_create_dataset, build()),
    litert.PhoneProcess(build, file, _create_dataset),
  )


@pytest.fixture(name="started", scope="module")
def _started(processes):
  """A runtime and the state that its process begins with."""
  with runtimes.create_runtime("tflite", concurrent_clients=2) as runtime:
    yield runtime, runtime.initialize(processes[1])


def test_round_is_that_of_in_process(processes, started):
  runtime, state = started
  with runtimes.create_runtime("in_process") as other:
    expected_state = other.initialize(processes[0])
    for client_ids in (["3", "0", "1"], ["1"]):
      state, metrics = runtime.next(state, client_ids)
      expected_state, expected = other.next(expected_state, client_ids)
      assert not runtime.skipped_clients
      found = dict(metrics["client_work"])
      assert found.keys() == expected["client_work"].keys()
      for name, value in expected["client_work"].items():
        assert found[name] == pytest.approx(value, rel=1e-5)
    tree.map_structure(
      lambda one, another: np.testing.assert_allclose(one, another, atol=1e-6),
      runtime.structured_state(state).global_model_weights,
      other.structured_state(expected_state).global_model_weights,
    )
  assert 0 < runtime.peak_memory_bytes <= 100e6


def _pack(delta, **words):
  words = {deltas.SPEC: "abc", deltas.ROUND: "0", **words}
  return tensor_files.pack(delta, words)


def _draw(rng, norm):
  """A delta of some norm."""
  flat = rng.normal(size=17 * _DIM)
  flat *= norm / np.linalg.norm(flat)
  kernel, bias = np.split(np.float32(flat), [16 * _DIM])
  return {
    "embedding_kernel": kernel.reshape([16, _DIM]),
    "embedding_bias": bias,
  }


def _spoil(rng):
  """Deltas that must be refused, and the reasons, of each kind."""
  good = _draw(rng, 0.3)
  name = str(rng.choice(list(good)))
  content = _pack(good)
  # A brace of the header is no longer one.
  brace = bytes([int(rng.integers(0, 256)) & ~2])
  flat = good[name].flatten()
  flat[rng.integers(flat.size)] = rng.choice([np.nan, np.inf, -np.inf])
  values = {
    "other tensors": {f"more_{name}": good[name]},
    "another type": {name: good[name].astype(np.int32)},
    "another shape": {name: good[name][..., np.newaxis]},
    "not finite": {name: flat.reshape(good[name].shape)},
  }
  damaged = {"no header", "a damaged header"}
  noise = rng.bytes(int(rng.integers(0, 2 * len(content))))
  return [
    (content[: rng.integers(0, len(content))], damaged),
    (content[:8] + brace + content[9:], damaged),
    (noise, damaged | {"too many bytes"}),
    (content + bytes(1 << 17), {"too many bytes"}),
    (
      _pack(good, **{deltas.ROUND: str(rng.integers(1, 99))}),
      {"another round"},
    ),
    (_pack(good, **{deltas.SPEC: rng.bytes(4).hex()}), {"another run"}),
    *((_pack(good | bad), {reason}) for reason, bad in values.items()),
  ]


def _run_round(started, messages, monkeypatch):
  """A round to which devices send what is said; its leaves and who is out."""
  runtime, state = started

  def run_client(name, client_id, round_num):
    del name, round_num  # Unused.
    return messages[client_id], learning_process.ClientUpdate((), 0, 0)

  with monkeypatch.context() as patch:
    patch.setattr(runtime, "_run_client", run_client)
    new_state, metrics = runtime.next(state, list(messages))
  model = runtime.structured_state(new_state).global_model_weights
  return model.trainable, metrics, runtime.skipped_clients


def test_a_thousand_bad_deltas_change_no_bit(started, monkeypatch):
  rng = np.random.default_rng(1)
  good = {f"good {i}": _pack(_draw(rng, 0.4)) for i in range(5)}
  expected, _, skipped = _run_round(started, good, monkeypatch)
  assert not skipped
  spoiled = [each for _ in range(_NUM_BAD // 10) for each in _spoil(rng)]
  rng.shuffle(spoiled)
  bad = {f"bad {i}": message for i, (message, _) in enumerate(spoiled)}
  # Those that are added stay in their order, which decides how a sum rounds.
  devices = list(bad)
  for place, device in zip((0, 100, 500, 501, 1004), good, strict=True):
    devices.insert(place, device)
  messages = {device: (good | bad)[device] for device in devices}
  found, metrics, skipped = _run_round(started, messages, monkeypatch)
  for one, other in zip(found, expected, strict=True):
    assert one.tobytes() == other.tobytes()
  assert metrics["client_work"]["num_clients"] == len(good)
  # Each is told of, with its reason.
  assert len(skipped) == _NUM_BAD
  for error in skipped:
    _, reasons = spoiled[int(error.client_id.removeprefix("bad "))]
    assert str(error).partition("ValueError: ")[2] in reasons
  assert sum(started[0].delta_counts.values()) == len(devices)
  assert started[0].delta_counts["accepted"] == len(good)


def test_one_that_is_too_long_contributes_the_clip_norm(started, monkeypatch):
  rng = np.random.default_rng(2)
  runtime, state = started
  before = runtime.structured_state(state).global_model_weights.trainable
  for norm in (0.5 * (1 + 1e-4), 3.0, 1e30):
    sent = {"one": _pack(_draw(rng, norm))}
    after, _, skipped = _run_round(started, sent, monkeypatch)
    assert not skipped
    assert runtime.delta_counts == {"accepted": 1, deltas.TOO_LONG: 1}
    # The sum is divided by four clients, however many there are.
    changes = tree.map_structure(np.subtract, tuple(after), tuple(before))
    norm = np.linalg.norm(np.concatenate(list(map(np.ravel, changes))))
    assert 4 * norm == pytest.approx(_CLIP_NORM, rel=1e-5)


def test_a_round_of_nothing_but_bad_deltas_is_a_round(started, monkeypatch):
  runtime, state = started
  before = runtime.structured_state(state).global_model_weights.trainable
  after, _, skipped = _run_round(started, {"a": b"", "b": b"x"}, monkeypatch)
  assert len(skipped) == 2
  tree.map_structure(np.testing.assert_array_equal, after, before)


def _end_second_client(monkeypatch, code):
  """Has the second client of a round run other code."""
  run = subprocess.run

  def run_other(command, **options):
    number = command[-1].removesuffix(".stays")[-1]
    command = [sys.executable, "-c", code] if number == "1" else command
    return run(command, **options)

  monkeypatch.setattr(litert.subprocess, "run", run_other)


def test_a_process_that_is_killed_is_a_client_that_sends_none(
  started, processes, monkeypatch
):
  runtime, state = started
  dies = "import os; os.write(2, b'oh no'); os.kill(os.getpid(), 9)"
  _end_second_client(monkeypatch, dies)
  expected = "client '0' failed: KilledError: its process ended by SIGKILL: oh"
  with pytest.raises(client_error.ClientError, match=expected):
    runtime.next(state, ["3", "0", "1"])
  with runtimes.create_runtime(
    "tflite", concurrent_clients=2, on_client_error="skip"
  ) as other:
    state = other.initialize(processes[1])
    _, metrics = other.next(state, ["3", "0", "1"])
    (skipped,) = other.skipped_clients
    assert str(skipped).startswith(expected)
    assert metrics["client_work"]["num_clients"] == 2
    # A bug is one, whatever happens to clients.
    _end_second_client(monkeypatch, "raise ValueError('a bug')")
    with pytest.raises(
      client_error.ClientError, match=r"with status 1: ValueError: a bug"
    ) as caught:
      other.next(state, ["3", "0", "1"])
    assert "Traceback" in caught.value.__cause__.__notes__[0]


def test_refuses_what_it_cannot_run(processes):
  with (
    runtimes.create_runtime("tflite") as runtime,
    pytest.raises(errors.FieldError, match="was not made for it"),
  ):
    runtime.initialize(processes[0])


def test_without_litert_it_says_what_installs_it(monkeypatch):
  monkeypatch.setattr(litert, "_LITERT", "no_such_package")
  with pytest.raises(errors.FieldError, match="make setup LITE=1"):
    runtimes.create_runtime("tflite")


def _start(run_dir, runtime):
  return programs.launch(
    "tests.phones.phone_run", str(run_dir), runtime, log=f"{run_dir}.log"
  )


def _read(run_dir):
  """Model, trace, ledger and account of a run."""
  model = tf.saved_model.load(str(run_dir / "release/saved_model"))
  weights = model.signatures["serving_default"].variables
  chain = chain_lib.Chain(run_dir)
  summary = json.loads((run_dir / "summary.json").read_text())
  return (
    {weight.name: weight.numpy() for weight in weights},
    (run_dir / "participation.trace").read_bytes(),
    dataclasses.asdict(chain.ledger.report()),
    summary["privacy"],
  )


@pytest.mark.slow
def test_killed_run_on_phones_is_that_of_in_process(tmp_path):
  killed, other = tmp_path / "tflite", tmp_path / "in_process"
  programs.kill_in_the_middle(_start(killed, "tflite"), killed, rounds=1)
  # Round 1 runs again and must release the same: it has the same noise.
  programs_left = [_start(killed, "tflite"), _start(other, "in_process")]
  assert [program.wait() for program in programs_left] == [0, 0]
  log = pathlib.Path(f"{killed}.log").read_text()
  assert "Running round 1 again, with the same noise, at no further cost" in log
  weights, *rest = _read(killed)
  expected, *expected_rest = _read(other)
  assert rest == expected_rest
  for name, value in expected.items():
    np.testing.assert_allclose(weights[name], value, atol=1e-4)
