"""Tests of the program that classifies features."""

import json
import math

import numpy as np
import pytest

from tests.binaries import programs
from tests.features import feature_examples


@pytest.fixture(name="files")
def _files(tmp_path):
  feature_examples.write_pair(tmp_path)
  return tmp_path


def _file_flags(directory):
  return (
    f"--train={directory}/train.npz",
    f"--test={directory}/test.npz",
    f"--output_json={directory}/result.json",
  )


def test_program(files):
  accuracy, epsilon, releases, warning, written = feature_examples.run_program(
    "classify_features",
    *_file_flags(files),
    "--method=feature_covariance",
    "--epsilon=3",
    "--delta=0.001",
    "--seed=7",
    "--split=covariance=1,gradient=3",
    "--hyperparameters=steps=5,loss=sigmoid,learning_rate=0.5",
    f"--predictions={files}/predictions.npz",
    f"--output_weights={files}/weights.npz",
  )
  result = json.loads((files / "result.json").read_text())
  assert accuracy == (
    f"test accuracy {result['test_accuracy']:.4f} (60 examples, 3 classes),"
    " feature_covariance fitted to 60 examples"
  )
  assert result["epsilon"] == "inf"
  assert epsilon.startswith(
    "epsilon = inf: the noise is from --seed, which may be known (with secret"
    f" noise: epsilon = {result['epsilon_with_secret_noise']:.4f} at delta ="
  )
  assert warning.startswith("warning: the noise is from a seed")
  assert releases.startswith("releases: covariance once, noise multiplier ")
  assert "; gradient 5 times, noise multiplier " in releases
  assert written.count(str(files)) == 3
  assert sorted(path.name for path in files.iterdir()) == [
    "predictions.npz",
    "result.json",
    "test.npz",
    "train.npz",
    "weights.npz",
  ]
  # A gradient has a fifth of three shares of zero-concentrated DP.
  of_covariance, of_gradients = (
    release["noise_multiplier"] for release in result["releases"]
  )
  assert of_gradients == pytest.approx(of_covariance * math.sqrt(5 / 3))
  assert result["hyperparameters"]["steps"] == 5
  assert result["hyperparameters"]["loss"] == "sigmoid"
  # The weights, the predictions and the accuracy belong together.
  with np.load(files / "test.npz") as arrays:
    features, labels = arrays["features"], arrays["labels"]
  norms = np.linalg.norm(features, axis=1, keepdims=True)
  with np.load(files / "weights.npz") as arrays:
    logits = features / np.maximum(norms, 1) @ arrays["coef"].T
  with np.load(files / "predictions.npz") as arrays:
    np.testing.assert_allclose(arrays["logits"], logits, rtol=1e-4, atol=1e-5)
    predictions = arrays["predictions"]
  np.testing.assert_array_equal(predictions, logits.argmax(axis=1))
  assert result["test_accuracy"] == np.mean(predictions == labels)


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (["--epsilon=0"], "--epsilon must be in (0, inf], found 0.0."),
    ([], "--epsilon must be given, found nothing."),
    (["--epsilon=1"], "--delta must be given where epsilon is finite,"),
    (["--epsilon=inf", "--method=magic"], "--method must be one of feature_"),
    (
      ["--epsilon=inf", "--runtime=tff"],
      "--runtime must not be set with unit example, which has no use for it,",
    ),
    (
      ["--epsilon=inf", "--unit=user", "--seed=1"],
      "--seed must not be set with unit user, which has no use for it, found",
    ),
    (
      ["--epsilon=inf", "--unit=user", "--user_clip_norm=-1"],
      "--user_clip_norm must be positive, found -1.0.",
    ),
    (["--epsilon=inf", "--test=none.npz"], "--test must be a file of features"),
  ],
)
def test_refuses_in_one_line(files, arguments, message):
  ended = programs.call("classify_features", *_file_flags(files), *arguments)
  programs.check_refused(ended, message)
  assert not (files / "result.json").exists()


def test_classes_that_nothing_is_fitted_to_are_told_to_the_user_alone(files):
  with np.load(files / "train.npz") as arrays:
    np.savez(
      files / "train.npz",
      features=arrays["features"],
      labels=np.zeros_like(arrays["labels"]),
    )
  ended = programs.call(
    "classify_features", *_file_flags(files), "--epsilon=3", "--delta=0.001"
  )
  assert ended.status == 0
  warning = (
    "warning: 2 of the 3 classes of --test have no example in --train (which"
    " epsilon does not cover: keep it to yourself)"
  )
  assert ended.errors == f"{warning}\n"
  assert "have no example" not in (files / "result.json").read_text()
