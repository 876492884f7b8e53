"""Tests of the answers on disk."""

import json
import math
import multiprocessing
import pathlib

import pytest

from tff_fedemb.data.participation import registry as participations
from tff_fedemb.privacy import cache
from tff_fedemb.privacy import planning


class _Counted:
  """Computes, and counts how often."""

  def __init__(self, value):
    self._value = value
    self.calls = 0

  def __call__(self):
    self.calls += 1
    return self._value


def test_without_a_directory_everything_is_computed():
  compute = _Counted(1.5)
  assert [cache.remember("f", {}, compute) for _ in range(2)] == [1.5, 1.5]
  assert compute.calls == 2


@pytest.mark.parametrize(
  "value", [1 / 3, math.inf, None, 7, {"a": [0.1, "words"]}]
)
def test_what_was_computed_is_found_to_the_last_bit(tmp_path, value):
  compute = _Counted(value)
  for _ in range(3):
    with cache.on_disk(tmp_path / "new" / "directory"):
      assert cache.remember("f", {"x": 0.1 + 0.2}, compute) == value
  assert compute.calls == 1
  assert len(list((tmp_path / "new" / "directory").iterdir())) == 1


def test_everything_in_the_key_counts(tmp_path, monkeypatch):
  compute = _Counted(0)
  with cache.on_disk(tmp_path):
    cache.remember("f", {"x": 1}, compute)
    cache.remember("g", {"x": 1}, compute)
    cache.remember("f", {"x": 2}, compute)
    assert compute.calls == 3
    versions = cache._code()
    assert {"dp-accounting", "scipy", "numpy"} < set(versions)
    monkeypatch.setattr(
      cache, "_code", lambda: versions | {"dp-accounting": "another"}
    )
    cache.remember("f", {"x": 1}, compute)
  assert compute.calls == 4


def _change_value(text):
  entry = json.loads(text)
  return json.dumps(entry | {"value": entry["value"].replace("25", "26")})


@pytest.mark.parametrize(
  "damage",
  [
    lambda text: "",
    lambda text: text[: len(text) // 2],
    lambda text: "[1, 2]",
    lambda text: '{"key": 1}',
    lambda text: "\udcff".join(text),
    _change_value,
  ],
)
def test_damaged_entries_are_computed_again(tmp_path, damage):
  compute = _Counted(0.25)
  with cache.on_disk(tmp_path):
    cache.remember("f", {}, compute)
    (path,) = tmp_path.iterdir()
    path.write_text(damage(path.read_text()), errors="surrogateescape")
    assert cache.remember("f", {}, compute) == 0.25
    assert cache.remember("f", {}, compute) == 0.25
  assert compute.calls == 2


@pytest.mark.parametrize("directory", ["file", "file/below", "/proc/no"])
def test_a_directory_that_cannot_be_written_is_no_mistake(tmp_path, directory):
  (tmp_path / "file").write_text("taken")
  compute = _Counted(2)
  with cache.on_disk(pathlib.Path(tmp_path, directory)):
    assert [cache.remember("f", {}, compute) for _ in range(2)] == [2, 2]
  assert compute.calls == 2


def _write_often(directory):
  with cache.on_disk(directory):
    return [
      cache.remember("f", {"x": x % 5}, lambda x=x: x % 5) for x in range(200)
    ]


def test_writers_at_the_same_time(tmp_path):
  context = multiprocessing.get_context("fork")
  with context.Pool(4) as pool:
    for found in pool.map(_write_often, [tmp_path] * 4):
      assert found == [x % 5 for x in range(200)]
  assert len(list(tmp_path.iterdir())) == 5


def test_reports_from_the_cache_are_the_same(tmp_path):
  plan = planning.Plan(
    "blt",
    participations.create_participation(
      "min_separation", num_users=1_000, users_per_round=50
    ),
    rounds=100,
    noise_multiplier=4.0,
    delta=1e-5,
  )
  computed = planning.create_report(plan)
  for _ in range(2):
    with cache.on_disk(tmp_path):
      # A plan of its own keeps nothing of the first one's.
      assert (
        planning.create_report(
          planning.Plan(
            "blt", plan.participation, 100, noise_multiplier=4.0, delta=1e-5
          )
        )
        == computed
      )
