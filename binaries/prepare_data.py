"""Turns downloaded data sets into the files that the tasks read.

Google Landmarks v2 (any of images_000.tar ... images_499.tar with their
md5.images_NNN.txt, and the tables landmarks-user-160k.zip or
mini_gld_train_split.csv and mini_gld_test.csv), iNaturalist 2017
(train_val_images.tar.gz, test2017.tar.gz or their unpacked folders, and
iNaturalist_train.csv and iNaturalist_test.csv) or DigiFace-1M
(subjects_*_imgs.zip, which are only verified):

  python -m binaries.prepare_data --task=gld --source_dir=downloads \
    --output_dir=data --dry_run
  python -m binaries.prepare_data --task=gld --source_dir=downloads \
    --output_dir=data

It says what it found, what is missing and how much disk it takes, before it
does anything. Killed at any time and started again, it goes on.
"""

from experiments import command_line  # isort: skip

from absl import flags

from tasks.prepare import preparing
from tff_fedemb.data import bad_examples

_TASK = flags.DEFINE_string(
  "task", None, f"Benchmark: {', '.join(sorted(preparing.VARIANTS))}."
)
_SOURCE_DIR = flags.DEFINE_string(
  "source_dir", None, "Folder of what was downloaded; it is only read."
)
_OUTPUT_DIR = flags.DEFINE_string(
  "output_dir",
  None,
  "Folder of the result, the --data_dir of the task. For digiface, which is"
  " not converted: folder to note in which zips were verified [none].",
)
_VARIANT = flags.DEFINE_string(
  "variant",
  None,
  "Which of the task's data sets: "
  + "; ".join(
    f"{task}: {', '.join(names)}"
    for task, names in preparing.VARIANTS.items()
    if names
  )
  + " [gld: all whose tables are there; inaturalist: user_120k].",
)
_DRY_RUN = flags.DEFINE_bool(
  "dry_run",
  False,
  "Whether to say what was found, what is missing and how much disk it takes,"
  " and write nothing.",
)
_ON_BAD_EXAMPLE = flags.DEFINE_string(
  "on_bad_example",
  "fail",
  "What to do about images that are missing or damaged:"
  f" {', '.join(bad_examples.POLICIES)}.",
)


def main() -> None:
  """Prepares the data that the flags describe."""
  preparing.execute(
    command_line.call_with_flags(
      preparing.PreparationConfig,
      task=_TASK.value,
      source_dir=_SOURCE_DIR.value,
      output_dir=_OUTPUT_DIR.value,
      variant=_VARIANT.value,
      on_bad_example=_ON_BAD_EXAMPLE.value,
      dry_run=_DRY_RUN.value,
    )
  )


if __name__ == "__main__":
  command_line.run(main)
