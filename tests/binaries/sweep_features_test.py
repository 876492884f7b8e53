"""Tests of the program that compares classifiers over epsilons."""

import json
import statistics

import numpy as np
from PIL import Image
import pytest

from tests.features import feature_examples
from tff_fedemb.features import feature_files
from tff_fedemb.features import runs

_PROGRAM = "sweep_features"


@pytest.fixture(name="flags")
def _flags(tmp_path):
  """Flags of a sweep over small files, which are there."""
  return {
    **feature_examples.write_both(tmp_path),
    "methods": "sgd:steps=3,least_squares",
    "epsilons": "inf,1",
    "delta": 1e-3,
    "output_json": tmp_path / "sweep.json",
    "overwrite": True,
  }


def _sweep(flags, **changes):
  return feature_examples.call(_PROGRAM, **flags | changes)


def test_program(flags, tmp_path):
  lines = feature_examples.run_program(
    _PROGRAM,
    **flags
    | {
      "methods": "least_squares,least_squares:covariance=per_class",
      "delta": 0.1,
      "num_fits": 2,
      "output_png": tmp_path / "sweep.png",
    },
  )
  result = json.loads((tmp_path / "sweep.json").read_text())
  told = [" ".join(row.split()) for row in lines[:3]]
  figures = [f"{x['mean']:.4f} ± {x['stdev']:.4f}" for x in result["results"]]
  assert told == [
    "epsilon 1 epsilon inf",
    " ".join(("least_squares", *figures[:2])),
    " ".join(("least_squares:covariance=per_class", *figures[2:])),
  ]
  # Fits have secret noise unless they are given seeds.
  assert (result["seeds"], result["num_fits"]) == (None, 2)
  assert 0.99 < result["results"][0]["epsilon"] <= 1
  ending = " ".join(" ".join(lines[3:]).split())
  assert ending.startswith("warning: delta 0.1 is not below 1 / 60")
  assert ending.endswith(
    f" Written to {tmp_path}/sweep.json and {tmp_path}/sweep.png."
  )
  with Image.open(tmp_path / "sweep.png") as image:
    assert image.format == "PNG"


def test_every_accuracy_is_that_of_its_own_fit(flags, tmp_path):
  result, _ = _sweep(flags, seeds="1,2")
  assert len(result["results"]) == 4
  for found in result["results"]:
    name, _, items = found["method"].partition(":")
    fit, _ = feature_examples.call(
      "classify_features",
      train=flags["train"],
      test=flags["test"],
      method=name,
      hyperparameters=items or None,
      epsilon=found["target_epsilon"],
      delta=flags["delta"],
      seed=2,
      output_json=tmp_path / "fit.json",
      overwrite=True,
    )
    assert fit["test_accuracy"] == found["accuracies"][1]
    assert found["mean"] == pytest.approx(statistics.mean(found["accuracies"]))
    deviation = statistics.stdev(found["accuracies"])
    assert found["stdev"] == pytest.approx(deviation)
    # The noise comes from seeds, which the file has.
    assert found["epsilon"] == "inf"
    secret = float(found["epsilon_with_secret_noise"])
    assert secret <= float(found["target_epsilon"])
  # A deterministic method without noise is the same for every seed.
  assert result["results"][3]["stdev"] == 0
  assert result["train_size"] == 60
  assert "the sweep as a whole" in result["not_covered"]
  # Each of 3 classes has a third of the 60 examples.
  assert result["accuracy_of_guessing"] == pytest.approx(1 / 3)
  (warning,) = result["warnings"]
  assert "from a seed" in warning


@pytest.mark.slow
def test_users(flags):
  feature_examples.write(flags["train"], seed=0, num_users=60)
  flags |= {"methods": "least_squares", "epsilons": "inf", "num_fits": 1}
  result, output = _sweep(flags, unit="user")
  (found,) = result["results"]
  # A single fit has no deviation.
  assert found["stdev"] is None and "±" not in output
  assert (found["unit"], result["num_users"]) == ("user", 60)
  assert "train_size" not in result


@pytest.mark.parametrize("num_users", [0, 10])
def test_a_share_of_the_training_file_is_held_out(flags, num_users):
  feature_examples.write(flags["train"], seed=0, num_users=num_users)
  flags |= {"test": None, "methods": "least_squares"}
  result, _ = _sweep(flags, epsilons="inf", tuning_share=0.2, num_fits=1)
  assert result["tuning_share"] == 0.2
  assert (result["train_size"], result["test_size"]) == (48, 12)
  expected = feature_files.read_features(flags["train"])
  left, held = runs.hold_out(expected, 0.2)
  # Each example once, and none of a user on both sides.
  both = np.concatenate([left.features, held.features])
  np.testing.assert_array_equal(
    np.sort(both, axis=0), np.sort(expected.features, axis=0)
  )
  if num_users:
    assert len(set(held.users)) == 2
    assert not set(held.users) & set(left.users)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"epsilons": ""}, "--epsilons must be given, found none"),
    ({"epsilons": "1,x"}, "--epsilons must be in (0, inf], found 'x'"),
    ({"epsilons": "101"}, "epsilon must be in (0, 100], found 101.0"),
    (
      {"methods": ",".join(f"sgd:steps={i + 1}" for i in range(7))},
      "--methods must be 1 to 6, found 7",
    ),
    ({"methods": "newton", "unit": "user"}, "--methods must be one of feature"),
    ({"tuning_share": 0.5}, "--test must be given, or tuning_share, one of th"),
    ({"seeds": "-1"}, "--seeds must be an integer of at least 0, found -1"),
    ({"unit": "user", "seeds": "1"}, "--seeds must not be given with unit us"),
    ({"seeds": "1", "num_fits": 1}, "--num_fits must not be given with seed"),
    ({"seed": 1}, "Unknown command line flag 'seed'"),
  ],
)
def test_mistakes(flags, tmp_path, changes, message):
  feature_examples.check_refused(_PROGRAM, tmp_path, message, **flags | changes)
