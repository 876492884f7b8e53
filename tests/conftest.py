"""What all tests share: their order, their memory, and the end of TFF's worker.

`make test` runs files side by side, each file in one process.
"""

import functools
import gc
import pathlib
import sys

import pytest

from tasks.synthetic import emnist
from tff_fedemb.runtime import worker_process

_DIRECTORY = pathlib.Path(__file__).parent
# The files that take longest come first, lest one of them starts when the
# others are done and all cores but one have no work; the first five have the
# longest of the slow tests.
_LONGEST_FILES = (
  "rounds/resumption_test.py",
  "binaries/ending_test.py",
  "notebook_test.py",
  "evaluation/gallery_thresholds_test.py",
  "models/pretrained_normalization_test.py",
  "binaries/run_federated_test.py",
  "mechanisms/mechanisms_test.py",
  "runtime/ray_test.py",
  "runtime/ray_grid_test.py",
  "planning/calibration_test.py",
  "binaries/report_test.py",
  "algorithms/fedemb_test.py",
  "runtime/parity_test.py",
  "binaries/account_test.py",
  "binaries/photo_runs_test.py",
  "training/tuning_test.py",
  "binaries/deployment_test.py",
  "binaries/plot_privacy_test.py",
  "binaries/benchmark_test.py",
)


@pytest.fixture(autouse=True, scope="module")
def _compile_once():
  """TFF takes a second to compile a process, which some tests start anew."""
  # Not before a test file has imported TensorFlow.
  module = sys.modules.get("tff_fedemb.runtime.in_process")
  if module is None:
    yield
    return
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(module, "_compile", functools.cache(module._compile))
    yield


@pytest.fixture(name="emnist_dir", scope="session")
def _emnist_dir(tmp_path_factory):
  """EMNIST of three users."""
  directory = tmp_path_factory.mktemp("emnist")
  emnist.write_emnist(directory, num_users=3, seed=1)
  return directory


def pytest_configure():
  worker_process.end_worker_on_exit()


def pytest_collection_modifyitems(items):
  ranks = {_DIRECTORY / name: rank for rank, name in enumerate(_LONGEST_FILES)}
  items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


def pytest_collection_finish():
  # A quarter of the time of tests that trace computations is the garbage
  # collector's, which looks at all that TensorFlow keeps for good.
  gc.collect()
  gc.freeze()
  gc.set_threshold(200_000)


def pytest_unconfigure():
  # TFF's execution context, which ends the worker, must be collected.
  gc.unfreeze()
  worker_process.end_worker()
