"""Tests of the benchmark of features."""

import json

import numpy as np
from PIL import Image

from benchmarks import feature_cases
from tests.binaries import programs


def test_vectors_are_of_their_classes():
  config = feature_cases.FeatureBenchmarkConfig(
    output="unused", num_examples=400, dim=32, spread=0.5
  )
  fitted, tested = feature_cases.draw(config, 5)
  assert (fitted.features.shape, tested.features.shape) == (
    (400, 32),
    (2_000, 32),
  )
  assert fitted.features.dtype == np.float32
  for examples in (fitted, tested):
    np.testing.assert_allclose(
      np.linalg.norm(examples.features, axis=1), 1, rtol=1e-5
    )
  means = [fitted.features[fitted.labels == k].mean(axis=0) for k in range(5)]
  nearest = (tested.features @ np.transpose(means)).argmax(axis=1)
  np.testing.assert_array_equal(nearest, tested.labels)


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
    assert (found["seed"], len(found["results"])) == (1, 4)
  with Image.open(tmp_path / "made_up.png") as image:
    assert image.format == "PNG"
