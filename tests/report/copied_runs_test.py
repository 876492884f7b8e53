"""A budget is never overspent, whatever happens to directories of runs."""

import functools
import threading

import pytest

from tests.report import copied_runs


def _resume(world):
  world.run("a", dies_in=7)
  world.run("a")


def _die_between(world):
  """The chain has the round, but its model was not used."""
  world.run("a", dies_before_charge_of=6)
  world.run("a")


def _move(world):
  world.run("a", dies_in=7)
  (world.path / "a").rename(world.path / "b")
  world.run("b")


def _copy(world, **first):
  """Both go on, the copy with other data."""
  world.run("a", **first)
  world.copy("a", "b")
  world.run("a")
  world.run("b", data=1.0)


def _copy_within(world):
  world.run("a", dies_in=7)
  world.copy("a", "b")
  world.run("b", data=1.0)
  world.run("a")


def _copy_a_copy(world):
  world.run("a", dies_in=5)
  world.copy("a", "b")
  world.run("b", data=1.0, dies_in=8)
  world.copy("b", "c")
  for name, data in (("a", 0.0), ("b", 1.0), ("c", 2.0)):
    world.run(name, data=data)


def _copy_without_a_checkpoint(world):
  """The copy runs round 6 again."""
  world.run("a", dies_in=7)
  world.copy("a", "b")
  world.delete("b/checkpoints/round_6")
  world.run("a")
  world.run("b")


def _restore_after_a_kill(world):
  """The run that was lost may go on elsewhere."""
  world.run("a", dies_in=5)
  world.copy("a", "backup")
  world.run("a", dies_in=9)
  world.copy("backup", "a")
  world.run("a", data=1.0)


def _restore_after_the_end(world):
  world.run("a", dies_in=5)
  world.copy("a", "backup")
  world.run("a")
  world.copy("backup", "a")
  world.run("a", data=1.0)


def _copy_in_a_round(world):
  def go_on_with_a_copy():
    world.copy("a", "b")
    world.run("b", data=1.0)

  world.run("a", during={6: go_on_with_a_copy})


def _take_turns(world):
  """Each of three begins a round before another one has ended it."""

  def copy(name, then):
    def go_on():
      world.copy("a", name)
      world.run(name, during={6: then} if then else {}, data=ord(name))

    return go_on

  world.run("a", during={6: copy("b", copy("c", None))})


def _race(world):
  """Three programs, each with a copy, run at the same time."""
  world.run("a", dies_in=5)
  names = ("a", "b", "c")
  for name in names[1:]:
    world.copy("a", name)
  threads = [
    threading.Thread(target=world.run, args=(name,), kwargs={"data": ord(name)})
    for name in names
  ]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()


# How many times each round counts at the end, worked out by hand.
_WAYS = {
  "killed, and goes on": (_resume, [1] * 10),
  "killed between a round and its charge": (
    _die_between,
    [1] * 5 + [2] + [1] * 4,
  ),
  "moved": (_move, [1] * 10),
  "copied before the first round": (
    functools.partial(_copy, dies_in=1),
    [2] * 10,
  ),
  "copied within": (_copy_within, [1] * 6 + [2] * 4),
  "copied after the last round": (
    functools.partial(_copy, is_finished=False),
    [1] * 10,
  ),
  "a copy of a copy": (_copy_a_copy, [1] * 4 + [2] * 3 + [3] * 3),
  "a copy that lost a checkpoint": (
    _copy_without_a_checkpoint,
    [1] * 5 + [2] * 5,
  ),
  "restored after a kill": (_restore_after_a_kill, [1] * 4 + [2] * 6),
  "restored after the end": (_restore_after_the_end, [1] * 4 + [2] * 6),
  "copied in a round": (_copy_in_a_round, [1] * 5 + [2] * 5),
  "three take turns": (_take_turns, [1] * 5 + [3] * 5),
  "three at once": (_race, [1] * 4 + [3] * 6),
}

# Other counts with correlated noise, where a round runs again with its noise.
_CORRELATED = {
  "killed between a round and its charge": [1] * 10,
  "a copy that lost a checkpoint": [1] * 6 + [2] * 4,
}


def _expected(way, kind):
  _, times = _WAYS[way]
  return _CORRELATED.get(way, times) if kind == "correlated" else times


def _params(*quick):
  """Yields all ways and kinds of noise; all but the quick ones are slow."""
  for way in _WAYS:
    for kind in copied_runs.KINDS:
      marks = [] if (way, kind) in quick else [pytest.mark.slow]
      yield pytest.param(way, kind, marks=marks, id=f"{way}-{kind}")


@pytest.mark.parametrize(
  ("way", "kind"),
  _params(
    ("copied within", "independent"),
    ("copied in a round", "correlated"),
  ),
)
def test_sums_are_exact(tmp_path, way, kind):
  world = copied_runs.World(tmp_path, kind)
  _WAYS[way][0](world)
  assert not world.refused
  found, expected = world.budget, _expected(way, kind)
  assert found.spent == pytest.approx(
    copied_runs.cost(kind, expected), rel=1e-9
  )
  assert world.really_spent <= found.spent * (1 + 1e-9)
  # The same noise was never added to two sums.
  assert all(len(each) == 1 for each in world.sums_by_noise.values())


@pytest.mark.parametrize(
  ("way", "kind"),
  _params(
    ("copied in a round", "independent"), ("three at once", "independent")
  ),
)
def test_no_more_is_spent_than_there_is(tmp_path, way, kind):
  """The budget is enough for one run."""
  epsilon = copied_runs.cost(kind, [1] * 10) * (1 + 1e-6)
  world = copied_runs.World(tmp_path, kind, epsilon)
  _WAYS[way][0](world)
  assert world.really_spent <= epsilon
  assert world.budget.spent <= epsilon
  # A program is refused only if rounds count more than once.
  assert bool(world.refused) == (_expected(way, kind) != [1] * 10)
  for line in world.refused:
    assert "\n" not in line
    assert "privacy_budget must have enough left for the run" in line
    is_copy = "A copy of the run, or the run that this is a copy of, went on"
    assert (is_copy in line) == (not way.startswith("killed"))
