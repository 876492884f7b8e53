"""All programs as one command: `tff-fedemb train --flagfile=demo.flags`.

`tff-fedemb PROGRAM --helpshort` lists the flags of a program. You may write a
hyphen for an underscore in its name.
"""

from collections.abc import Sequence
import importlib
import sys

from binaries import command_line
from tff_fedemb import errors

SHORT = {"train": "run_federated", "centralized": "run_centralized"}
PROGRAMS = {
  "train": "train an embedding model with user-level privacy",
  "centralized": "train without privacy, on pooled data",
  "account": "epsilon of settings or of a run; calibrate, optimize, budget",
  "tune": "search hyperparameters and account for the search",
  "evaluate": "recall of a model on a task",
  "match": "who is it? a gallery, and photos to look up in it",
  "demo": "a web page to try a model with your own pictures",
  "report": "the report of a finished run",
  "export": "a run's model for phones, ONNX or TensorFlow Serving",
  "tabulate": "a table of runs",
  "plot_privacy": "pictures of epsilon and noise",
  "audit": "a lower bound of epsilon by attacks",
  "prepare_data": "convert the publishers' files",
  "extract_features": "features of images, by a frozen model",
  "classify_features": "a private classifier on features",
  "sweep_features": "private classifiers over epsilon",
  "benchmark": "time of a round, beside a bare TensorFlow loop",
  "benchmark_features": "time and accuracy of private classifiers",
}


def _help() -> str:
  """The names of the programs, each with what it does."""
  lines = ["Usage: tff-fedemb PROGRAM [--flag=value ...]", ""]
  width = max(map(len, PROGRAMS))
  for name, text in PROGRAMS.items():
    lines.append(f"  {name:{width}}  {text}")
  lines += ["", "tff-fedemb PROGRAM --helpshort lists the flags of a program."]
  return "\n".join(lines)


def main() -> None:
  """Runs the program that the command line names."""
  program, *arguments = sys.argv[1:] or ["help"]
  if program.lstrip("-") in ("h", "help", "helpshort", "helpfull"):
    print(_help())
    return
  name = program.replace("-", "_")

  def run(argv: Sequence[str]) -> None:
    if name not in PROGRAMS:
      raise errors.FieldError(
        "program", f"be one of {', '.join(PROGRAMS)}", repr(program)
      )
    module = importlib.import_module(f"binaries.{SHORT.get(name, name)}")
    module.main(argv)

  command_line.run(run, [f"tff-fedemb {program}", *arguments])
