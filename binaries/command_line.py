"""Start and end of every program.

A mistake in a flag or a file becomes one line on standard error and exit status
1. A bug keeps its stack trace.
"""

from collections.abc import Callable, Sequence
import gc
import io
import os
import select
import signal
import sys
from typing import Any, NoReturn
import warnings

from absl import flags
from absl import logging

from binaries import config_flags
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.runtime import process_settings
from tff_fedemb.runtime import worker_process

# These settings must precede the import of TensorFlow. Its C++ log reports
# missing GPUs and failed graph optimizations; failures that matter raise.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
process_settings.prepare()
# Imports make a million objects that stay; looking through them for garbage
# again and again takes a fifth of their time.
gc.set_threshold(max(gc.get_threshold()[0], 100_000))
warnings.filterwarnings("ignore", message="pkg_resources is deprecated")

_MISTAKES = (errors.FieldError, errors.DataError, errors.DivergedError)


def _exit_if_nobody_reads() -> None:
  """Ends the program, as `SIGPIPE` does, if standard output is a closed pipe.

  It returns if the pipe that broke was another one.
  """
  poll = select.poll()
  poll.register(sys.stdout.fileno(), 0)
  if any(event & select.POLLERR for _, event in poll.poll(0)):
    # The rest of the buffer would fail once more at the end of Python.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(128 + signal.SIGPIPE)


def _fail(error: Exception) -> NoReturn:
  """Ends the program with an error's message on one line."""
  print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
  sys.exit(1)


def run(
  main: Callable[[Sequence[str]], None], argv: Sequence[str] | None = None
) -> None:
  """Runs a program's main function, and ends with one line after a mistake.

  Args:
    main: Takes the program's name and its arguments.
    argv: These, in place of those of the process.
  """
  # Programs can end while they parse their flags, so this comes first.
  worker_process.end_worker_on_exit()
  # Libraries that have flags of their own ask whether these are parsed.
  flags.FLAGS.mark_as_parsed()
  logging.set_verbosity(logging.WARNING)
  # Names of users and files are printed wherever it goes.
  if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
    sys.stdout.reconfigure(errors="backslashreplace")
  try:
    main(sys.argv if argv is None else argv)
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


def execute(
  argv: Sequence[str],
  documentation: str,
  config_class: type[config_lib.Config],
  function: Callable[[Any], object],
  **options: Any,
) -> None:
  """Calls a function with the configuration that the command line describes.

  Args:
    argv: The program's name and its arguments.
    documentation: Beginning of the help.
    config_class: Class of the configuration.
    function: Function of the configuration.
    **options: Options of `config_flags.Parser.add`.
  """
  with config_flags.Parser(argv, documentation) as parser:
    config = parser.add(config_class, **options)
    parser.parse()
    function(config.create())
