"""How every program here starts, and how it speaks of a user's mistake.

A mistake (a flag, a file) is one line on standard error and exit status 1. A
bug is a stack trace.
"""

from collections.abc import Callable, Sequence
import json
import os
import pathlib
import select
import signal
import sys
from typing import NoReturn
import warnings

from absl import app
from absl import flags
from absl import logging

from binaries import config_flags
from tff_fedemb import errors
from tff_fedemb.runtime import worker_process

# All of these take effect only before TensorFlow is imported. Its C++ log tells
# of missing GPUs and failed graph optimizations; failures that matter raise.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# The in-process runtime gives each client threads of its own.
os.environ.setdefault("TF_OVERRIDE_GLOBAL_THREADPOOL", "1")
warnings.filterwarnings("ignore", message="pkg_resources is deprecated")


_ERROR_JSON = flags.DEFINE_string(
  "error_json",
  None,
  "File for the mistake that ends the program, if one does, for those who start"
  " programs: its type, the field or flag that is to blame and what was said.",
)

_MISTAKES = (errors.FieldError, errors.DataError, errors.DivergedError)


def _find_command(
  arguments: Sequence[str], commands: Sequence[str], takes_arguments: bool
) -> Sequence[str]:
  """What the main function is called with: the command, if there are any."""
  if takes_arguments:
    return arguments
  if not commands:
    if arguments:
      raise errors.FieldError(
        "arguments", "be flags (--name=value)", repr(" ".join(arguments))
      )
    return []
  command, *others = arguments or commands[:1]
  if command not in commands or others:
    raise errors.FieldError(
      "arguments",
      f"be one of {', '.join(commands)}, and flags (--name=value)",
      repr(" ".join(arguments)),
    )
  return [command]


def _exit_if_nobody_reads() -> None:
  """Ends the program, as `SIGPIPE` does, if standard output is a closed pipe.

  It returns if the pipe that broke was another one.
  """
  poll = select.poll()
  poll.register(sys.stdout.fileno(), 0)
  if any(event & select.POLLERR for _, event in poll.poll(0)):
    # What is left in the buffer would fail once more at the end of Python.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(128 + signal.SIGPIPE)


def _fail(error: Exception) -> NoReturn:
  """Ends the program with one line, which names a field by its flag."""
  field = None
  if isinstance(error, errors.FieldError):
    field = config_flags.flag_name(error.name)
    error = error.renamed(field)
  message = " ".join(str(error).split())
  print(f"error: {message}", file=sys.stderr)
  if flags.FLAGS.is_parsed() and _ERROR_JSON.value:
    path = pathlib.Path(_ERROR_JSON.value)
    partial = path.with_name(f".{path.name}.partial")
    values = {
      "type": type(error).__name__,
      "field": field and field.removeprefix("--"),
      "message": message,
    }
    partial.write_text(json.dumps(values) + "\n")
    os.replace(partial, path)
  sys.exit(1)


def run(
  main: Callable[..., None],
  *,
  commands: Sequence[str] = (),
  takes_arguments: bool = False,
  expand: Callable[[Sequence[str]], list[str]] = list,
) -> None:
  """Parses the flags and runs a program's main function.

  Args:
    main: Takes the command if there are commands, or all arguments, else
      nothing; flags are parsed when it is called.
    commands: What the first argument may be; the first one if there is none.
    takes_arguments: Whether arguments that are no flags are `main`'s.
    expand: From the arguments of the command line to those that are parsed.
  """

  # Also for programs that end while they parse their flags.
  worker_process.end_worker_on_exit()
  try:
    arguments = expand(sys.argv[1:])
  except errors.FieldError as error:
    _fail(error)
  # Not `app.run`, after which TensorFlow must not be imported: its import would
  # ask for devices before eager execution is on, which Keras takes to be off.
  app.define_help_flags()
  _, *arguments = app.parse_flags_with_usage([sys.argv[0], *arguments])
  # The default of absl's programs is to tell everything.
  if not flags.FLAGS["verbosity"].present:
    logging.set_verbosity(logging.WARNING)
  try:
    main(*_find_command(arguments, commands, takes_arguments))
    # Now, so that a reader who is gone is noticed here.
    sys.stdout.flush()
  except _MISTAKES as error:
    _fail(error)
  except BrokenPipeError:
    _exit_if_nobody_reads()
    raise
  except OSError as error:
    _fail(errors.StorageError.of(error))
  except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
    sys.exit(130)
