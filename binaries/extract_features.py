"""Turns labelled images into features, for private classifiers on top of them.

With an exported model, or with a map that needs no data:

  python -m binaries.extract_features --saved_model=runs/first/saved_model \
    --task=omniglot --data_dir=data --num_classes=20 \
    --output=train.npz --test_output=test.npz
  python -m binaries.extract_features --digits --embedding=random_features \
    --output=train.npz --test_output=test.npz

A file holds `repr`, `label` (0, 1, ...) and, of a task's training images,
`user`. It is as private as the images: nothing is protected by being embedded.

Labels count the classes of the source, whatever images are taken (sub-folders
of --image_folder in the order of their names, classes of --tfds, classes of the
task's split), or those that --num_classes draws from them: files of two runs
agree if their sources have the same classes, and their --num_classes and --seed
are the same.
"""

from experiments import command_line  # isort: skip

from absl import flags

from experiments.extraction import data_sets
from experiments.extraction import embeddings
from experiments.extraction import extracting
from experiments.extraction import settings
from tasks import registry as tasks
from tff_fedemb.data import bad_examples

_TASK = flags.DEFINE_string(
  "task",
  None,
  f"Benchmark whose images to embed: {', '.join(sorted(tasks.TASKS))}.",
)
_IMAGE_FOLDER = flags.DEFINE_string(
  "image_folder",
  None,
  "Folder instead, one sub-folder of PNG, JPEG, BMP or PGM images a class.",
)
_TFDS = flags.DEFINE_string(
  "tfds",
  None,
  "Data set of TensorFlow Datasets instead, prepared on disk:"
  f" {', '.join(data_sets.TFDS_NAMES)}.",
)
_DIGITS = flags.DEFINE_bool(
  "digits", False, "Whether to take scikit-learn's digits instead."
)
_DATA_DIR = flags.DEFINE_string(
  "data_dir", None, "Directory of the data of --task or --tfds."
)
_CACHE_DIR = flags.DEFINE_string(
  "cache_dir",
  None,
  "Directory of converted copies of data [~/.cache/tff_fedemb].",
)
_TASK_VARIANT = flags.DEFINE_string(
  "task_variant", None, "Which of the task's data sets [its first]."
)
_SPLIT = flags.DEFINE_string(
  "split",
  None,
  f"Split of the task: {', '.join(settings.SPLITS)}"
  f" [{settings.DEFAULTS['split']}].",
)
_TFDS_SPLIT = flags.DEFINE_string(
  "tfds_split",
  None,
  "Split of --tfds, such as test or train[:10%]"
  f" [{settings.DEFAULTS['tfds_split']}].",
)
_SAVED_MODEL = flags.DEFINE_string(
  "saved_model",
  None,
  "Directory of the SavedModel that embeds, such as saved_model/ of a run.",
)
_EMBEDDING = flags.DEFINE_string(
  "embedding",
  None,
  f"Map instead of a model: {', '.join(embeddings.EMBEDDINGS)}.",
)
_RANDOM_FEATURES = flags.DEFINE_integer(
  "random_features",
  None,
  "How many random features, an even number"
  f" [{settings.DEFAULTS['random_features']}].",
)
_GAMMA = flags.DEFINE_float(
  "gamma",
  None,
  "Of the random features' kernel exp(-gamma |x - y|^2) of pixels in [0, 1]"
  " [16 over their number].",
)
_IMAGE_SIZE = flags.DEFINE_integer(
  "image_size",
  0,
  "Side of the images in pixels where no model says it; 0: as they are.",
)
_NUM_CLASSES = flags.DEFINE_integer(
  "num_classes",
  0,
  "Classes drawn at random from all, with --test_output from those of two"
  " images or more; 0: all.",
)
_MAX_IMAGES = flags.DEFINE_integer(
  "max_images", 0, "Images drawn at random from those; 0: all."
)
_OUTPUT = flags.DEFINE_string(
  "output",
  None,
  "File to write, .npz or .tfrecord, in a directory that exists.",
)
_TEST_OUTPUT = flags.DEFINE_string(
  "test_output", None, "File for images kept for testing [none]."
)
_TEST_SHARE = flags.DEFINE_float(
  "test_share",
  None,
  "Share of each class's images in --test_output"
  f" [{settings.DEFAULTS['test_share']}].",
)
_SEED = flags.DEFINE_integer(
  "seed",
  0,
  "Of the classes, images and random features that are drawn.",
)
_ON_BAD_EXAMPLE = flags.DEFINE_string(
  "on_bad_example",
  "fail",
  f"What to do about a damaged image: {', '.join(bad_examples.POLICIES)}.",
)
_OVERWRITE = flags.DEFINE_bool(
  "overwrite", False, "Whether to replace files that exist."
)


def main() -> None:
  """Runs the extraction that the flags describe."""
  extracting.execute(
    command_line.call_with_flags(
      settings.ExtractionConfig,
      output=_OUTPUT.value,
      task=_TASK.value,
      image_folder=_IMAGE_FOLDER.value,
      tfds=_TFDS.value,
      digits=_DIGITS.value,
      data_dir=_DATA_DIR.value,
      cache_dir=_CACHE_DIR.value,
      task_variant=_TASK_VARIANT.value,
      split=_SPLIT.value,
      tfds_split=_TFDS_SPLIT.value,
      saved_model=_SAVED_MODEL.value,
      embedding=_EMBEDDING.value,
      random_features=_RANDOM_FEATURES.value,
      gamma=_GAMMA.value,
      image_size=_IMAGE_SIZE.value,
      num_classes=_NUM_CLASSES.value,
      max_images=_MAX_IMAGES.value,
      test_output=_TEST_OUTPUT.value,
      test_share=_TEST_SHARE.value,
      seed=_SEED.value,
      on_bad_example=_ON_BAD_EXAMPLE.value,
      overwrite=_OVERWRITE.value,
    )
  )


if __name__ == "__main__":
  command_line.run(main)
