"""The registry of tasks: what each is made from, by its name."""

from tasks import task_config
from tff_fedemb.spec import task as task_lib


class DigiFace(task_config.TaskConfig):
  """Faces that were rendered: `tasks.digiface`."""

  creator = "tasks.digiface:create_digiface_task"


class Emnist(task_config.TaskConfig):
  """Handwriting: `tasks.emnist`."""

  creator = "tasks.emnist:create_emnist_task"


class Gld(task_config.TaskConfig):
  """Landmarks: `tasks.gld`."""

  creator = "tasks.gld:create_gld_task"


class Handwriting(task_config.PopulationConfig):
  """Handwriting that is made up: `tasks.handwriting`."""

  creator = "tasks.handwriting:create_handwriting_task"


class INaturalist(task_config.TaskConfig):
  """Species: `tasks.inaturalist`."""

  creator = "tasks.inaturalist:create_inaturalist_task"


class Omniglot(task_config.TaskConfig):
  """Characters of many alphabets: `tasks.omniglot`."""

  creator = "tasks.omniglot:create_omniglot_task"


class Photos(task_config.PhotosConfig):
  """Photos of your own users: `tasks.photos`."""


class Symbols(task_config.PopulationConfig):
  """Symbols that are made up, a user each: `tasks.symbols`."""

  creator = "tasks.symbols:create_symbols_task"


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
