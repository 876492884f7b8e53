"""The registry of tasks: what each is made from, by its name."""

from tasks import task_config
from tff_fedemb.spec import task as task_lib


class DigiFace(task_config.TaskConfig):
  """Faces that were rendered: `tasks.digiface`."""


class Emnist(task_config.TaskConfig):
  """Handwriting: `tasks.emnist`."""


class Gld(task_config.TaskConfig):
  """Landmarks: `tasks.gld`."""


class Handwriting(task_config.PopulationConfig):
  """Handwriting that is made up: `tasks.handwriting`."""


class INaturalist(task_config.TaskConfig):
  """Species: `tasks.inaturalist`."""


class Omniglot(task_config.TaskConfig):
  """Characters of many alphabets: `tasks.omniglot`."""


class Photos(task_config.PhotosConfig):
  """Photos of your own users: `tasks.photos`."""


class Symbols(task_config.PopulationConfig):
  """Symbols that are made up, a user each: `tasks.symbols`."""


class Tfds(task_config.TfdsConfig):
  """A data set of TensorFlow Datasets: `tasks.tfds`."""


# A new task is one file and one class here. The file, and what it needs, is
# imported when the task is created.
task_lib.SOURCES.update(
  digiface=DigiFace,
  emnist=Emnist,
  gld=Gld,
  handwriting=Handwriting,
  inaturalist=INaturalist,
  omniglot=Omniglot,
  photos=Photos,
  symbols=Symbols,
  tfds=Tfds,
)
