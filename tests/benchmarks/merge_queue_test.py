"""Tests of the simulation of who adds up, on rounds told by hand."""

import pytest

from benchmarks import merge_queue


def _simulate(seconds, **options):
  options = {"transfer_seconds": 0.0, "merge_seconds": 0.0} | options
  cluster = merge_queue.Cluster(seconds_to_death=1e12, **options)
  return merge_queue.simulate(cluster, seconds)


def test_workers_take_chunks_in_their_order():
  # 3 + 1 beside 2 + 4.
  found = _simulate([3.0, 2.0, 4.0, 1.0], workers=2)
  assert (found.seconds, found.most_waiting) == (6.0, 2)
  assert found.merged == (0, 1, 2, 3)


def test_sums_are_received_one_after_the_other():
  found = _simulate([1.0] * 4, workers=4, transfer_seconds=0.5)
  assert found.seconds == 1.0 + 4 * 0.5
  # They wait for the first, and are added up faster than they come.
  found = _simulate([9.0, 1.0, 1.0], workers=3, transfer_seconds=0.5)
  assert (found.seconds, found.most_waiting) == (9.5, 3)
  # Unless they stay with the workers until their turn.
  found = _simulate(
    [9.0, 1.0, 1.0], workers=3, transfer_seconds=0.5, sums_ahead=1
  )
  assert (found.seconds, found.most_waiting) == (10.5, 1)
  found = _simulate([1.0] * 4, workers=4, merge_seconds=2.0)
  assert found.seconds == 1.0 + 4 * 2.0


def test_a_tree_sends_fewer_sums():
  options = {"transfer_seconds": 0.5, "merge_seconds": 0.25}
  found = _simulate([1.0] * 4, workers=4, levels=1, fan_in=2, **options)
  # One more is fetched and added, then two are sent.
  assert found.seconds == 1.0 + 0.75 + 2 * 0.5 + 0.25
  assert found.merged == (0, 1, 2, 3)


@pytest.mark.parametrize("levels", [0, 1, 2])
def test_every_chunk_counts_once_whoever_dies(levels):
  seconds = merge_queue.draw_seconds(100, 10.0)
  cluster = merge_queue.Cluster(
    workers=7, seconds_to_death=60.0, levels=levels, fan_in=4
  )
  found = merge_queue.simulate(cluster, seconds)
  assert found.deaths > 3
  assert found.merged == tuple(range(100))
  assert found == merge_queue.simulate(cluster, seconds)
