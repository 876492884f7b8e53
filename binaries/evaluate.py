r"""Evaluates an exported model on images of classes it was not trained on.

On any folder with one sub-folder a class, or on a benchmark's held-out images:

  python -m binaries.evaluate --saved_model=runs/first/release/saved_model \
    --image_folder=faces --output_json=faces.json
  python -m binaries.evaluate --saved_model=runs/first/release/saved_model \
    --task=emnist --data_dir=data --split=test --output_json=emnist.json

All pairs of images are compared; the file gets the recall at false accept rates
0.001, 0.01 and 0.1 with thresholds and intervals.
"""

from collections.abc import Sequence

from binaries import command_line
from binaries import config_flags
from tff_fedemb import runtime as runtimes
from tff_fedemb.serving import evaluate
from tff_fedemb.spec import task as task_lib


def main(argv: Sequence[str]) -> None:
  """Runs the evaluation that the flags describe."""
  task_lib.load_tasks()
  with config_flags.Parser(argv, __doc__) as parser:
    config = parser.add(evaluate.EvaluationConfig, skip=("image_size",))
    runtime = parser.add(runtimes.RuntimeConfig, skip=runtimes.OF_ROUNDS)
    parser.parse()
    evaluate.execute(config.create(), runtime.create())


if __name__ == "__main__":
  command_line.run(main)
