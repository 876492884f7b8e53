"""Tests of flags made from configurations, and of how programs end."""

import dataclasses
import errno
import io
import pathlib
import subprocess
import sys

import pytest

from binaries import command_line
from binaries import config_flags
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb import registry

_REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Part(config.Config):
  """A part.

  Attributes:
    length: How long.
  """

  length: int = config.field(3, minimum=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _One(_Part):
  """The one.

  Attributes:
    bands: Number of bands.
  """

  bands: int = config.field(2, minimum=1, flag="num_bands")


_KINDS = registry.Registry(_Part, {"one": _One, "plain": _Part}, kind="part")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Config(config.Config):
  """Settings of a program.

  Attributes:
    rounds: Rounds of training.
    kind: What kind.
    scale: How large.
    names: Which ones.
    is_quick: Whether it is quick.
    part: Which part.
    data: No flag.
  """

  rounds: int = config.field(10, minimum=1)
  kind: str = config.field("a", choices=("b", "a"))
  scale: float | None = config.field(None, above=0, flag="the_scale")
  names: tuple[str, ...] = ("a", "b")
  is_quick: bool = False
  part: _Part = config.part(_Part(), registry=_KINDS, flag="which")
  data: dict[str, int] | None = None


def _parse(*arguments, **options):
  with config_flags.Parser(["program", *arguments], "A program.") as parser:
    found = parser.add(_Config, **options)
    parser.parse()
    return found.create()


def test_flags_set_fields_of_chosen_parts():
  found = _parse(
    *("--rounds=3", "--kind", "b", "--the_scale=2", "--names=x,y"),
    *("--is_quick", "--which=one", "--num_bands=4", "--length=5"),
  )
  assert found == _Config(
    rounds=3,
    kind="b",
    scale=2.0,
    names=("x", "y"),
    is_quick=True,
    part=_One(bands=4, length=5),
  )


@pytest.mark.parametrize(
  ("arguments", "line"),
  [
    (["--rounds=0"], "--rounds must be an integer of at least 1, found 0."),
    (["--the_scale=-2"], "--the_scale must be positive, found -2.0."),
    (["--num_bands=2"], "--num_bands must not be set with which plain, which"),
    (["--which=two"], "--which must be one of one, plain, found 'two'."),
    (["--flagfile=/no/file"], "--flagfile must be a file, found"),
    (["x"], "arguments must be flags (--name=value), found 'x'."),
  ],
)
def test_an_error_names_the_flag(arguments, line):
  if line.startswith("--num"):
    arguments = [*arguments, "--which=plain"]
  with pytest.raises(errors.FieldError) as error:
    _parse(*arguments)
  assert str(error.value).startswith(line)


def test_a_flagfile_may_have_flags_of_parts_that_are_not_chosen(tmp_path):
  path = tmp_path / "some.flags"
  path.write_text("--which=one\n--num_bands=4\n--rounds=2\n")
  assert _parse(f"--flagfile={path}").part == _One(bands=4)
  made = _parse(f"--flagfile={path}", "--which=plain")
  assert made == _Config(rounds=2, part=_Part())


def test_help_is_the_documentation(capsys):
  with pytest.raises(SystemExit) as ended:
    _parse("--helpshort")
  assert ended.value.code == 0
  output = " ".join(capsys.readouterr().out.split())
  assert output.startswith(
    "A program. Flags: Settings of a program. --rounds Rounds of"
  )
  assert "--kind What kind: a, b [a]." in output
  assert "--[no]is_quick Whether it is quick [false]." in output
  assert "--num_bands Number of bands [2]. (--which=one)" in output
  assert "--the_scale How large." in output


def _start(main):
  return subprocess.Popen(
    [
      sys.executable,
      "-c",
      f"from binaries import command_line\ncommand_line.run({main})",
    ],
    cwd=_REPOSITORY,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


@pytest.mark.parametrize(
  "main",
  [
    "lambda _: print('x')",
    "lambda _: [print('x' * 100) for _ in range(5_000)]",
  ],
)
def test_a_reader_who_is_gone(main):
  with _start(main) as process:
    process.stdout.close()
    assert not process.stderr.read()
  assert process.returncode == 141


def test_another_broken_pipe_is_told():
  main = "lambda _: (_ for _ in ()).throw(BrokenPipeError('another pipe'))"
  with _start(main) as process:
    _, error = process.communicate()
  assert process.returncode == 1
  assert "another pipe" in error


@pytest.mark.parametrize(
  ("error", "line"),
  [
    (errors.FieldError("--v", "be 1", 2), "--v must be 1, found 2."),
    (errors.DataError("a.txt is\ncut."), "a.txt is cut."),
    (errors.DivergedError("it diverged."), "it diverged."),
    (
      OSError(errno.ENOSPC, "No space left on device"),
      "a file cannot be written: No space left on device.",
    ),
  ],
)
def test_mistakes_are_one_line(capsys, error, line):
  def fail(argv):
    raise error

  with pytest.raises(SystemExit) as ended:
    command_line.run(fail, ["program"])
  assert ended.value.code == 1
  assert capsys.readouterr().err == f"error: {line}\n"


def test_programs_print_names_where_output_is_ascii(monkeypatch):
  output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
  monkeypatch.setattr(sys, "stdout", output)
  command_line.run(lambda argv: print(*argv), ["Zo\xeb", "caf\udce9"])
  assert output.buffer.getvalue() == rb"Zo\xeb caf\udce9" + b"\n"
