"""Tests of writing the file that trains on phones."""

import hashlib
import json

import numpy as np
import pytest

from tests.binaries import programs
from tests.run import specs
import tff_fedemb as fe
from tff_fedemb import errors
from tff_fedemb.run import task as task_lib
from tff_fedemb.serving import lite_export


def _write_run(folder, **fields):
  folder.mkdir()
  task = task_lib.create_task("handwriting", num_users=100)
  specs.write(folder, task, **fields)
  return folder


def _export(run_dir, output_dir):
  return programs.call(
    *("export", f"--run_dir={run_dir}", "--formats=training"),
    f"--output_dir={output_dir}",
  )


def test_program_writes_a_run_s_clients(tmp_path):
  run_dir = _write_run(
    tmp_path / "run", mechanism={"kind": "clip_only", "clip_norm": 0.25}
  )
  output = tmp_path / "phone"
  ended = _export(run_dir, output)
  assert ended.status == 0
  assert "training.tflite: 8" in ended.output
  assert "clipped to 0.25." in ended.output
  content = (output / "training.tflite").read_bytes()
  card = json.loads((output / "training.json").read_text())
  assert card["sha256"] == hashlib.sha256(content).hexdigest()
  assert card["clip_norm"] == 0.25
  assert card["head"]["kind"] == "linear"
  again = _export(run_dir, output)
  assert "output_dir must be a new file unless overwrite" in again.errors


def test_digest_is_of_what_decides_the_training():
  task = task_lib.create_task("handwriting", num_users=100)
  digests = {
    specs.create(task, **fields).training_digest
    for fields in (
      {},
      {"runtime": fe.Runtime(runtime="tff")},
      {"evaluation": fe.Evaluation(metrics=True)},
      {"mechanism": {"kind": "gaussian", "clip_norm": 0.3}},
    )
  }
  assert len(digests) == 2


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    ({"algorithm": "fedavg"}, "algorithm must be fedemb, of images"),
    (
      {"mechanism": {"kind": "adaptive_gaussian"}},
      "aggregator must have a fixed clip norm .*found adaptive_gaussian",
    ),
    ({"mechanism": {"kind": "none"}}, "have a fixed clip norm"),
  ],
)
def test_refuses_in_a_line(fields, message, tmp_path):
  run_dir = _write_run(tmp_path / "run", **fields)
  with pytest.raises(errors.FieldError, match=message):
    fe.export(run_dir, tmp_path / "phone", formats=("training",))


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    ({}, "saved_model must be given, or run_dir"),
    ({"saved_model": "a", "run_dir": "b"}, "and not both"),
    ({"saved_model": "a", "formats": ("training",)}, "run_dir must be given"),
  ],
)
def test_asks_for_a_run_or_a_model(fields, message):
  with pytest.raises(errors.FieldError, match=message):
    lite_export.ExportConfig(output_dir="out", **fields)


def test_task_of_arrays_is_given(tmp_path):
  images = np.zeros([8, 28, 28, 1], np.uint8)
  labels = users = np.arange(8) // 2
  task = fe.ArrayTask(images, labels % 2, users, test=(images, labels))
  spec = fe.RunSpec(
    task=task, participation=fe.FixedSize(users_per_round=2, users_per_client=2)
  )
  (tmp_path / "run.json").write_text(json.dumps(spec.to_json()))
  with pytest.raises(errors.FieldError, match="task must be given as arrays"):
    fe.export(tmp_path, tmp_path / "phone", formats=("training",))
  fe.export(
    *(tmp_path, tmp_path / "phone"), formats=("training",), task=task.create()
  )
  card = json.loads((tmp_path / "phone" / "training.json").read_text())
  assert card["spec_sha256"] == spec.training_digest
