"""Tests of many fits, over methods, epsilons, files and seeds."""

import json
import statistics

import pytest

from tests.features import feature_examples
from tff_fedemb import errors
from tff_fedemb.features import runs as feature_runs
from tff_fedemb.features import sweeps as feature_sweeps
from tff_fedemb.features.federated import settings as federated_settings

_DELTA = 1e-3
_USERS = federated_settings.UserSettings()


@pytest.fixture(name="files")
def _files(tmp_path):
  for index in range(2):
    feature_examples.write_pair(tmp_path, index)
  return tmp_path


def config(directory, **changes):
  values = {
    "train": (f"{directory}/train0.npz", f"{directory}/train1.npz"),
    "test": (f"{directory}/test0.npz", f"{directory}/test1.npz"),
    "methods": ("sgd:steps=3", "least_squares"),
    "epsilons": ("1", "inf"),
    "delta": _DELTA,
    "seeds": ("1", "2"),
    "output_json": f"{directory}/sweep.json",
  }
  return feature_sweeps.SweepConfig(**(values | changes))


def execute(directory, **changes):
  feature_sweeps.execute(config(directory, **changes))
  # Infinity is "inf", as JSON has none.
  return json.loads(
    (directory / "sweep.json").read_text(), parse_constant=pytest.fail
  )


def test_every_accuracy_is_that_of_its_own_fit(files, capsys):
  result = execute(files)
  assert len(result["results"]) == 4
  for found in result["results"]:
    epsilon = float(found["target_epsilon"])
    name, *items = found["method"].split(":")
    method = config(files).create_method(name, "methods", items, epsilons=[])
    for pair, seed in ((0, 2), (1, 1)):
      problem = feature_runs.read_problem(
        config(files), f"{files}/train{pair}.npz", f"{files}/test{pair}.npz"
      )
      fit = feature_runs.fit(
        config(files), problem, method, epsilon=epsilon, seed=seed
      )
      assert fit.test_accuracy == found["accuracies"][pair][seed - 1]
    # Of each seed the mean over pairs, of which mean and deviation.
    means = [statistics.mean(a) for a in zip(*found["accuracies"], strict=True)]
    assert found["mean"] == pytest.approx(statistics.mean(means))
    assert found["stdev"] == pytest.approx(statistics.stdev(means))
    assert len(found["fits"]) == 2
    # From seeds, which the file has.
    assert found["fits"][0]["epsilon"] == "inf"
    assert float(found["fits"][0]["epsilon_with_secret_noise"]) <= epsilon
  # A deterministic method without noise is the same for every seed.
  assert result["results"][3]["stdev"] == 0
  assert result["pairs"][1]["train"].endswith("train1.npz")
  assert result["pairs"][0]["train_size"] == 60
  assert feature_sweeps.NOT_COVERED in result["not_covered"]
  assert feature_runs.CLASSES_FROM_LABELS in result["assumptions"]
  # Of 60 examples each of 3 classes has a third.
  assert result["accuracy_of_guessing"] == pytest.approx(1 / 3)
  (warning,) = result["warnings"]
  assert "from a seed" in warning
  assert "sgd:steps=3" in capsys.readouterr().out


def test_users(files):
  """One example each, and without noise: as where examples are protected."""
  feature_examples.write(files / "train0.npz", seed=0, num_users=60)
  options = {
    "train": (f"{files}/train0.npz",),
    "test": (f"{files}/test0.npz",),
    "methods": ("least_squares",),
    "epsilons": ("inf",),
    "seeds": (),
    "num_fits": 1,
    "delta": None,
  }
  expected = execute(files, **options)
  options |= {"output_png": f"{files}/sweep.png", "overwrite": True}
  result = execute(files, **options, protection=_USERS)
  mean = expected["results"][0]["mean"]
  assert result["results"][0]["mean"] == pytest.approx(mean)
  assert result["unit"] == "user"
  assert result["seeds"] is None
  assert (result["num_fits"], expected["num_fits"]) == (1, 1)
  assert result["pairs"][0]["num_users"] == 60
  assert "train_size" not in result["pairs"][0]


def test_fits_have_secret_noise_unless_they_are_given_seeds(files):
  options = {"methods": ("sgd:steps=3",), "epsilons": ("1",), "seeds": ()}
  result = execute(files, num_fits=2, **options)
  assert (result["seeds"], result["num_fits"]) == (None, 2)
  (found,) = result["results"]
  assert 0.99 < found["fits"][0]["epsilon"] <= 1
  assert result["warnings"] == []


def test_a_single_seed_has_no_deviation(files, capsys):
  result = execute(files, seeds=("1",), epsilons=("inf",), delta=None)
  assert [found["stdev"] for found in result["results"]] == [None, None]
  assert "±" not in capsys.readouterr().out


@pytest.mark.parametrize(
  "changes,message",
  [
    ({"test": ("a.npz",)}, "at least one, found 2 and 1"),
    ({"methods": ("sgd", "sgd")}, "methods must be given, each once"),
    ({"seeds": ("-1",)}, "seeds must be an integer of at least 0, found -1"),
    (
      {"methods": tuple(f"sgd:steps={i + 1}" for i in range(7))},
      "methods must be 1 to 6, found 7",
    ),
    ({"methods": ("sgd", "magic")}, "methods must be among .*'magic'"),
    (
      {"methods": ("sgd", "sgd:batch_size=61"), "epsilons": ("inf",)},
      "found 'sgd:batch_size=61': batch_size must be at most",
    ),
    ({"epsilons": ("-1",)}, "epsilon must be in"),
    (
      {"methods": ("newton",), "protection": _USERS, "seeds": ()},
      "methods must be among sgd, .*, each .* 'newton'",
    ),
    ({"protection": _USERS}, "seeds must not be given with unit user"),
    (
      {"protection": _USERS, "seeds": ()},
      "train must hold user, .* in .*train0.npz",
    ),
    ({"output_png": "no/such/directory.png"}, "output_png must be in"),
  ],
)
def test_mistakes(files, changes, message):
  before = sorted(files.iterdir())
  with pytest.raises(errors.FieldError, match=message) as error:
    feature_sweeps.execute(config(files, **changes))
  assert "\n" not in str(error.value)
  assert sorted(files.iterdir()) == before
