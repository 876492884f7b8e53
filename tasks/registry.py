"""The registry of tasks."""

from collections.abc import Callable

from tasks import digiface
from tasks import emnist
from tasks import gld
from tasks import handwriting
from tasks import inaturalist
from tasks import omniglot
from tasks import photos
from tasks import task
from tff_fedemb import checks

# A new task is one file and one line here; each raises what `create_task` does.
TASKS: dict[str, Callable[[task.TaskConfig], task.Task]] = {
  "digiface": digiface.create_digiface_task,
  "emnist": emnist.create_emnist_task,
  "gld": gld.create_gld_task,
  "handwriting": handwriting.create_handwriting_task,
  "inaturalist": inaturalist.create_inaturalist_task,
  "omniglot": omniglot.create_omniglot_task,
  "photos": photos.create_photos_task,
}


def create_task(name: str, config: task.TaskConfig) -> task.Task:
  """Creates the task of a name, a key of `TASKS`.

  Raises:
    FieldError: If the name, or a value of the configuration, is none that there
      is, or the data are missing.
    DataError: If the data are damaged and that is not to be skipped.
  """
  checks.check_choice("task", name, TASKS)
  config.check_options(name)
  created = TASKS[name](config)
  if not config.selection_users:
    return created
  return created.leave_out(config.selection_users)
