"""What all tests share: no worker process of TFF outlives them."""

from tff_fedemb.runtime import worker_process


def pytest_configure():
  worker_process.end_worker_on_exit()


def pytest_unconfigure():
  worker_process.end_worker()
