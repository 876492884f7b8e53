"""Writes the file that trains on phones, and what there is to know of it."""

from __future__ import annotations

import json
import os

from etils import epy

from tff_fedemb import output_files
from tff_fedemb.program import tflite
from tff_fedemb.run import experiment as experiment_lib
from tff_fedemb.run import spec as spec_lib

with epy.lazy_imports():
  from tff_fedemb.run import task as task_lib

FORMAT = "training"


def write(
  run_dir: str | os.PathLike[str],
  output_dir: str | os.PathLike[str],
  *,
  task: task_lib.Task | None = None,
  overwrite: bool = False,
) -> str:
  """Writes training.tflite, and beside it training.json.

  Nothing that was trained is in it: the weights come with each round.

  Args:
    run_dir: A run, finished or not, whose spec says what clients do.
    output_dir: Where to write.
    task: The run's task, if its data live in this program [made again].
    overwrite: Whether to replace files that exist.

  Returns:
    A line that says what was written.

  Raises:
    errors.FieldError: If phones cannot train so, or it cannot be written.
  """
  spec = spec_lib.read(run_dir)
  experiment = experiment_lib.resolve(spec, task or spec.task.create())
  file = experiment.create_client_file()
  with output_files.directory(output_dir) as folder:
    path = folder / f"{FORMAT}{tflite.SUFFIX}"
    beside = path.with_suffix(".json")
  for output in (path, beside):
    output_files.check({"output_dir": os.fspath(output)}, overwrite=overwrite)
  text = json.dumps(file.describe(), indent=2) + "\n"
  output_files.write(
    {
      "card": (os.fspath(beside), lambda target: target.write_text(text)),
      "output_dir": (
        os.fspath(path),
        lambda target: target.write_bytes(file.content),
      ),
    }
  )
  return (
    f"{path}: {len(file.content) / 1e3:.0f} kB; a client's training of"
    f" {file.backbone.name}, clipped to {file.clip_norm:g}."
  )
