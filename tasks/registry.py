"""The registry of tasks: what each is made from, by its name."""

from __future__ import annotations

import dataclasses

from etils import epy

from tasks import task_config
from tff_fedemb.run import task as task_lib

with epy.lazy_imports():
  from tasks import digiface
  from tasks import emnist
  from tasks import gld
  from tasks import handwriting
  from tasks import inaturalist
  from tasks import omniglot
  from tasks import photos
  from tasks import tfds


@dataclasses.dataclass(frozen=True)
class DigiFace(task_config.TaskConfig):
  """Faces that were rendered: `tasks.digiface`."""

  def build(self) -> task_lib.Task:
    return digiface.create_digiface_task(self)


@dataclasses.dataclass(frozen=True)
class Emnist(task_config.TaskConfig):
  """Handwriting: `tasks.emnist`."""

  def build(self) -> task_lib.Task:
    return emnist.create_emnist_task(self)


@dataclasses.dataclass(frozen=True)
class Gld(task_config.TaskConfig):
  """Landmarks: `tasks.gld`."""

  def build(self) -> task_lib.Task:
    return gld.create_gld_task(self)


@dataclasses.dataclass(frozen=True)
class Handwriting(task_config.HandwritingConfig):
  """Handwriting that is made up: `tasks.handwriting`."""

  def build(self) -> task_lib.Task:
    return handwriting.create_handwriting_task(self)


@dataclasses.dataclass(frozen=True)
class INaturalist(task_config.TaskConfig):
  """Species: `tasks.inaturalist`."""

  def build(self) -> task_lib.Task:
    return inaturalist.create_inaturalist_task(self)


@dataclasses.dataclass(frozen=True)
class Omniglot(task_config.TaskConfig):
  """Characters of many alphabets: `tasks.omniglot`."""

  def build(self) -> task_lib.Task:
    return omniglot.create_omniglot_task(self)


@dataclasses.dataclass(frozen=True)
class Photos(task_config.PhotosConfig):
  """Photos of your own users: `tasks.photos`."""

  def build(self) -> task_lib.Task:
    return photos.create_photos_task(self)


@dataclasses.dataclass(frozen=True)
class Tfds(task_config.TfdsConfig):
  """A data set of TensorFlow Datasets: `tasks.tfds`."""

  def build(self) -> task_lib.Task:
    return tfds.create_tfds_task(self)


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
  tfds=Tfds,
)
