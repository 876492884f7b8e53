r"""Converts a model, or a run's clients, to TensorFlow Lite; a model to ONNX.

  python -m binaries.export --saved_model=runs/first/release/saved_model \
    --output_dir=phone --image_folder=faces
  python -m binaries.export --run_dir=runs/first --formats=training \
    --output_dir=phone

Each file is told with its size, its time for one image, and the difference in
recall on the same held-out images, beside the SavedModel's. Its thresholds and
its guarantee go along, in a .json file beside it. int8 takes the ranges of its
numbers from images that are made up: never from the users' own. --formats=onnx
writes model.onnx, if it gives what the SavedModel gives in ONNX Runtime.
"""

from collections.abc import Sequence

from binaries import command_line
from tff_fedemb.serving import lite_export
from tff_fedemb.spec import task as task_lib


def main(argv: Sequence[str]) -> None:
  """Runs the export that the flags describe."""
  task_lib.load_tasks()
  command_line.execute(
    argv,
    __doc__,
    lite_export.ExportConfig,
    lite_export.execute,
    skip=("image_size",),
  )


if __name__ == "__main__":
  command_line.run(main)
