"""Tests of the benchmark of features."""

import json

from PIL import Image

from tests.binaries import programs


def test_no_problem_at_all(tmp_path):
  ended = programs.call(
    "benchmark_features", "--num_classes=", f"--output={tmp_path}/made_up"
  )
  assert ended.status == 1
  assert "num_classes must have a number" in ended.errors


def test_program(tmp_path):
  ended = programs.call(
    "benchmark_features",
    *("--num_classes=2,3", "--num_examples=200", "--dim=4", "--epsilons=1,8"),
    *("--methods=least_squares,sgd", f"--output={tmp_path}/made_up"),
  )
  assert ended.status == 0, ended.errors
  for num_classes in (2, 3):
    text = (tmp_path / f"made_up_{num_classes}.json").read_text()
    found = json.loads(text)
    assert found["num_classes"] == num_classes
    assert (found["seeds"], len(found["results"])) == ([1, 2], 4)
  with Image.open(tmp_path / "made_up.png") as image:
    assert image.format == "PNG"
