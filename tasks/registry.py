"""The registry of tasks."""

from collections.abc import Callable

from etils import epy

from tasks import task_config
from tff_fedemb import checks
from tff_fedemb.run import task as task_lib

with epy.lazy_imports():
  from tasks import digiface
  from tasks import emnist
  from tasks import gld
  from tasks import handwriting
  from tasks import inaturalist
  from tasks import omniglot
  from tasks import photos

# A new task is one file and one line here; each raises what `create_task` does.
# Its file, and what that needs, is imported when the task is created.
TASKS: dict[str, Callable[[task_config.TaskConfig], task_lib.Task]] = {
  "digiface": lambda config: digiface.create_digiface_task(config),
  "emnist": lambda config: emnist.create_emnist_task(config),
  "gld": lambda config: gld.create_gld_task(config),
  "handwriting": lambda config: handwriting.create_handwriting_task(config),
  "inaturalist": lambda config: inaturalist.create_inaturalist_task(config),
  "omniglot": lambda config: omniglot.create_omniglot_task(config),
  "photos": lambda config: photos.create_photos_task(config),
}


def create_task(name: str, config: task_config.TaskConfig) -> task_lib.Task:
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
