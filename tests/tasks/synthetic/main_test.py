"""Tests of the command line: every benchmark, and the contact sheet."""

import pathlib

from absl import flags
from PIL import Image
import pytest

from tasks.synthetic import __main__ as command_line
from tasks.synthetic import registry


def _call_main(*arguments):
  """Returns the message with which the program ends, None after success."""
  flag_values = flags.FlagValues()
  command_line.define_flags(flag_values)
  argv = ("python -m tasks.synthetic", *arguments)
  try:
    command_line.main(command_line.parse_flags(argv, flag_values), flag_values)
  except SystemExit as error:
    assert isinstance(error.code, str)
    return error.code
  return None


def test_every_writer_has_a_contact_sheet():
  assert sorted(registry.WRITERS) == sorted(registry.CONTACT_SHEETS)
  assert sorted(registry.WRITERS) == [
    "digiface",
    "emnist",
    "gld",
    "inaturalist",
  ]


@pytest.mark.parametrize(
  ("task", "expected"),
  [
    ("gld", ["gld160k", "gld23k"]),
    ("inaturalist", ["user_120k"]),
    ("emnist", ["emnist_all.sqlite"]),
    ("digiface", ["subjects_0-0_72_imgs.zip"]),
  ],
)
def test_writes_and_draws(task, expected, tmp_path, capsys):
  sheet = tmp_path / "sheet.png"
  arguments = (f"--task={task}", f"--output_dir={tmp_path}/data")
  assert not _call_main(*arguments, "--num_users=1", f"--contact_sheet={sheet}")
  names = sorted(path.name for path in pathlib.Path(tmp_path, "data").iterdir())
  assert names == expected
  assert f"Wrote {sheet}" in capsys.readouterr().out
  with Image.open(sheet) as image:
    assert image.format == "PNG"

  message = _call_main(*arguments, "--num_users=2")
  assert "nothing was changed" in message
  assert "\n" not in message


@pytest.mark.parametrize(
  ("sheet", "expected"),
  [
    ("sheet.jpg", "--contact_sheet must name a .png file, found 'sheet.jpg'"),
    ("/dev/null/x.png", "--contact_sheet=/dev/null/x.png must be a file that"),
  ],
)
def test_mistake_in_the_contact_sheet_gets_one_line(
  sheet, expected, tmp_path, monkeypatch
):
  def draw(data, output_png):
    assert data == str(tmp_path)
    pathlib.Path(output_png).write_bytes(b"")

  monkeypatch.setitem(registry.WRITERS, "gld", lambda *_, **__: [])
  monkeypatch.setitem(registry.CONTACT_SHEETS, "gld", draw)
  message = _call_main(
    "--task=gld", f"--output_dir={tmp_path}", f"--contact_sheet={sheet}"
  )
  assert expected in message
  assert "\n" not in message
