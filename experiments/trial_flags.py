"""The flags of a tuning's trials, which are those of another program."""

from collections.abc import Mapping
from collections.abc import Sequence
import subprocess
import xml.etree.ElementTree

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


def check_trial_flags(
  trial_flags: Sequence[str], flag_types: Mapping[str, str]
) -> None:
  """Refuses what is no flag of a trial, before anything is written.

  Raises:
    errors.FieldError: Names the first one.
  """
  for flag in trial_flags:
    name, equals, _ = flag.removeprefix("-").removeprefix("-").partition("=")
    known = name in flag_types and (equals or flag_types[name] == "bool")
    negated = flag_types.get(name.removeprefix("no")) == "bool" and not equals
    if not flag.startswith("-") or not (known or negated):
      raise errors.FieldError(
        "trial_flags", "be flags of the trials (--name=value)", repr(flag)
      )
