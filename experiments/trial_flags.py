"""The flags of a tuning's trials, which are those of another program."""

from collections.abc import Mapping
from collections.abc import Sequence
import shlex
import subprocess
import xml.etree.ElementTree

from absl import flags

from tff_fedemb import errors


def read_flag_types(command: Sequence[str]) -> dict[str, str]:
  """Asks a program for its flags.

  Args:
    command: What starts it.

  Returns:
    Absl's name of a flag's type, by the flag's name.
  """
  text = subprocess.run(
    [*command, "--helpxml"], stdout=subprocess.PIPE, check=False
  ).stdout
  return {
    flag.findtext("name"): flag.findtext("type")
    for flag in xml.etree.ElementTree.fromstring(text).iter("flag")
    if flag.findtext("key") == "yes"
  }


def read(
  flagfile: str | None, text: str, flag_types: Mapping[str, str]
) -> tuple[str, ...]:
  """Reads the flags of all trials, those of a file first.

  Args:
    flagfile: Path of the file, if there is one.
    text: Further flags, as in a shell.
    flag_types: As `read_flag_types` returns them.

  Raises:
    errors.FieldError: If one cannot be read, or is no flag of a trial.
  """
  words = []
  try:
    if flagfile:
      words = flags.FLAGS.read_flags_from_files([f"--flagfile={flagfile}"])
    words = [*words, *shlex.split(text)]
  except flags.Error as error:
    raise errors.FieldError(
      "trial_flagfile", "be a file of flags", error
    ) from error
  except ValueError as error:
    raise errors.FieldError(
      "trial_flags", "be flags as in a shell", error
    ) from error
  for word in words:
    name, equals, _ = word.removeprefix("-").removeprefix("-").partition("=")
    known = name in flag_types and (equals or flag_types[name] == "bool")
    negated = flag_types.get(name.removeprefix("no")) == "bool" and not equals
    if not word.startswith("-") or not (known or negated):
      raise errors.FieldError(
        "trial_flags", "be flags of the trials (--name=value)", repr(word)
      )
  return tuple(words)
