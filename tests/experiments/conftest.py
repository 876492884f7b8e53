"""What programs that embed images are tested on."""

import pytest

from tasks.synthetic import emnist


@pytest.fixture(scope="session")
def emnist_dir(tmp_path_factory):
  directory = tmp_path_factory.mktemp("emnist")
  emnist.write_emnist(directory, num_users=3, seed=1)
  return directory
