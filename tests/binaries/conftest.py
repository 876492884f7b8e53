"""What programs that train are tested on."""

import pytest

from tasks.synthetic import emnist


@pytest.fixture(name="data_dir", scope="session")
def _data_dir(tmp_path_factory):
  """Six users of EMNIST with thirty examples each."""
  directory = tmp_path_factory.mktemp("data")
  emnist.write_emnist(directory, num_users=6, seed=2, examples_per_user=30)
  return directory
