"""Turns labelled images into features, for private classifiers on top of them.

With an exported model, or with a map that needs no data:

  python -m binaries.extract_features --task=omniglot --data_dir=data \
    --saved_model=runs/first/release/saved_model --num_classes=20 \
    --output=train.npz --test_output=test.npz
  python -m binaries.extract_features --digits --embedding=pixels \
    --output=train.npz --test_output=test.npz

A file holds `repr`, `label` (0, 1, ...) and, of a task's training images,
`user`. It is as private as the images: nothing is protected by being embedded.

Labels count the classes of the source, whatever images are taken (sub-folders
of --image_folder in the order of their names, classes of --tfds, classes of the
task's split), or those that --num_classes draws from them: files of two runs
agree if their sources have the same classes, and their --num_classes and --seed
are the same.
"""

from collections.abc import Sequence

from binaries import command_line
from binaries import config_flags
from tff_fedemb import runtime as runtimes
from tff_fedemb.features import extraction
from tff_fedemb.spec import task as task_lib


def main(argv: Sequence[str]) -> None:
  """Runs the extraction that the flags describe."""
  task_lib.load_tasks()
  with config_flags.Parser(argv, __doc__) as parser:
    config = parser.add(extraction.ExtractionConfig)
    runtime = parser.add(runtimes.RuntimeConfig, skip=runtimes.OF_ROUNDS)
    parser.parse()
    extraction.execute(config.create(), runtime.create())


if __name__ == "__main__":
  command_line.run(main)
