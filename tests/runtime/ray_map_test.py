"""Tests of work on a cluster that is no round."""

import os
import signal
from unittest import mock

import pytest

from tff_fedemb import errors
from tff_fedemb import runtime
from tff_fedemb.runtime import ray_map

pytest.importorskip("ray")


def test_without_a_cluster_it_is_map():
  with runtime.RuntimeConfig().open_map() as map_fn:
    assert [*map_fn(abs, [-1, 2])] == [1, 2]
  with pytest.raises(
    errors.FieldError, match=r"runtime must be in_process or ray .*, found tff"
  ):
    runtime.RuntimeConfig(runtime="tff").open_map()


def test_no_chunk_is_left_out_while_there_are_no_machines():
  cluster = mock.Mock(is_lost=False)
  cluster.count_workers.return_value = cluster.count_tasks.return_value = 0
  cluster.ray.wait = lambda references, **_: (references, [])
  cluster.ray.get = lambda references: [2 * r for r in references]
  results = ray_map.run_in_order(cluster, lambda chunk: [chunk], range(9))
  assert [*results] == [[2 * chunk] for chunk in range(9)]


@pytest.mark.slow
def test_results_are_in_order_whoever_dies(tmp_path):
  read = []

  def read_chunks():
    for chunk in range(12):
      read.append(chunk)
      yield chunk

  def square(chunk):
    path = tmp_path / str(chunk)
    if chunk == 5 and not path.exists():
      path.touch()
      os.kill(os.getpid(), signal.SIGKILL)
    if chunk == 100:
      os.kill(os.getpid(), signal.SIGKILL)
    if chunk < 0:
      raise errors.FieldError("saved_model", "be there", chunk)
    return chunk**2

  config = runtime.RuntimeConfig(runtime="ray", ray_workers=1)
  with config.open_map() as map_fn:
    results = map_fn(square, read_chunks())
    assert next(results) == 0
    # Not all of many images are in memory.
    assert len(read) <= 3
    assert [*results] == [chunk**2 for chunk in range(1, 12)]
    with pytest.raises(errors.FieldError, match="be there, found -1"):
      [*map_fn(square, [-1])]
    with pytest.raises(ray_map.LostChunkError, match="4 workers that died"):
      [*map_fn(square, [100])]
