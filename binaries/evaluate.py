"""Evaluates an exported model on images of classes it was not trained on.

On any folder with one sub-folder a class, or on a benchmark's held-out images:

  python -m binaries.evaluate --saved_model=runs/first/saved_model \
    --image_folder=faces --output_json=faces.json
  python -m binaries.evaluate --saved_model=runs/first/saved_model \
    --task=emnist --data_dir=data --split=test --output_json=emnist.json

All pairs of images are compared; the file gets the recall at false accept rates
0.001, 0.01 and 0.1 with thresholds and intervals.
"""

from experiments import command_line  # isort: skip

from absl import flags

from experiments import evaluation_run
from tasks import registry as tasks
from tasks import task as task_lib
from tff_fedemb.data import bad_examples

_SAVED_MODEL = flags.DEFINE_string(
  "saved_model",
  None,
  "Directory of the SavedModel, such as saved_model/ of a run.",
)
_IMAGE_FOLDER = flags.DEFINE_string(
  "image_folder",
  None,
  "Folder with one sub-folder of PNG, JPEG, BMP or PGM images a class.",
)
_TASK = flags.DEFINE_string(
  "task",
  None,
  f"Benchmark, instead of a folder: {', '.join(sorted(tasks.TASKS))}.",
)
_DATA_DIR = flags.DEFINE_string(
  "data_dir", None, "Directory of the task's data."
)
_TASK_VARIANT = flags.DEFINE_string(
  "task_variant", None, "Which of the task's data sets [its first]."
)
_CACHE_DIR = flags.DEFINE_string(
  "cache_dir",
  None,
  "Directory of converted copies of data [~/.cache/tff_fedemb].",
)
_SPLIT = flags.DEFINE_string(
  "split",
  "test",
  f"Split of the task: {', '.join(task_lib.EVALUATION_SPLITS)}.",
)
_OUTPUT_JSON = flags.DEFINE_string(
  "output_json", None, "File for the result, in a directory that exists."
)
_ROC_PNG = flags.DEFINE_string(
  "roc_png", None, "File for a picture of the ROC curve [none]."
)
_OVERWRITE = flags.DEFINE_bool(
  "overwrite", False, "Whether to replace files that exist."
)
_MAX_IMAGES = flags.DEFINE_integer(
  "max_images", 0, "Images drawn at random from all; 0: all."
)
_ON_BAD_EXAMPLE = flags.DEFINE_string(
  "on_bad_example",
  "fail",
  f"What to do about a damaged image: {', '.join(bad_examples.POLICIES)}.",
)


def main() -> None:
  """Runs the evaluation that the flags describe."""
  evaluation_run.execute(
    command_line.call_with_flags(
      evaluation_run.EvaluationConfig,
      saved_model=_SAVED_MODEL.value,
      output_json=_OUTPUT_JSON.value,
      image_folder=_IMAGE_FOLDER.value,
      task=_TASK.value,
      data_dir=_DATA_DIR.value,
      cache_dir=_CACHE_DIR.value,
      split=_SPLIT.value,
      roc_png=_ROC_PNG.value,
      max_images=_MAX_IMAGES.value,
      on_bad_example=_ON_BAD_EXAMPLE.value,
      overwrite=_OVERWRITE.value,
      task_variant=_TASK_VARIANT.value,
    )
  )


if __name__ == "__main__":
  command_line.run(main)
