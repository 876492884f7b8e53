"""The registry of tasks."""

from collections.abc import Callable

from tasks import digiface
from tasks import emnist
from tasks import gld
from tasks import inaturalist
from tasks import omniglot
from tasks import task

# A new task is one file and one line here.
TASKS: dict[str, Callable[[task.TaskConfig], task.Task]] = {
  "digiface": digiface.create_digiface_task,
  "emnist": emnist.create_emnist_task,
  "gld": gld.create_gld_task,
  "inaturalist": inaturalist.create_inaturalist_task,
  "omniglot": omniglot.create_omniglot_task,
}


def create_task(name: str, config: task.TaskConfig) -> task.Task:
  """Creates a task by name.

  Args:
    name: A key of `TASKS`.
    config: Where the data are.

  Returns:
    The task.

  Raises:
    ValueError: If the name is unknown or the data are missing or damaged.
  """
  if name not in TASKS:
    raise ValueError(f"task must be one of {sorted(TASKS)}, found {name!r}.")
  return TASKS[name](config)
