"""Tests of what is written whole or not at all."""

import functools
import os
import pathlib
from unittest import mock

import pytest

from tff_fedemb import errors
from tff_fedemb.records import output_files


def _write(text):
  return functools.partial(pathlib.Path.write_text, data=text)


class TestCheck:
  @pytest.mark.parametrize(
    ("path", "message"),
    [
      ("real/a", "second must be another file than first, found"),
      ("link/a", "second must be another file than first, found"),
      ("real/in", "second must be another file than read, found"),
      ("alias", "second must be another file than read, found"),
      ("real", "second must be a file, found directory"),
      ("null", "second must be a file, found"),
      ("none/b", "second must be in a directory that can be written"),
    ],
  )
  def test_what_cannot_be_written(self, tmp_path, path, message):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "in").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "alias").symlink_to(tmp_path / "link" / "in")
    (tmp_path / "null").symlink_to(os.devnull)
    with pytest.raises(ValueError, match=message):
      output_files.check(
        {"first": f"{tmp_path}/real/a", "second": f"{tmp_path}/{path}"},
        overwrite=True,
        inputs={"read": [f"{tmp_path}/real/in"]},
      )

  def test_files_are_replaced_on_demand_only(self, tmp_path):
    outputs = {"first": f"{tmp_path}/a", "second": None}
    output_files.check(outputs, overwrite=False)
    assert not os.listdir(tmp_path)
    (tmp_path / "a").write_text("precious")
    with pytest.raises(ValueError, match="unless overwrite"):
      output_files.check(outputs, overwrite=False)
    output_files.check(outputs, overwrite=True)


class TestWrite:
  def test_links_are_followed(self, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real" / "b.txt")
    output_files.write(
      {
        "first": (f"{tmp_path}/a.txt", _write("one")),
        "second": (f"{tmp_path}/link", _write("two")),
      }
    )
    assert (tmp_path / "a.txt").read_text() == "one"
    assert (tmp_path / "real" / "b.txt").read_text() == "two"
    assert (tmp_path / "link").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "link", "real"]

  @pytest.mark.parametrize("error", [OSError(28, "No space"), ValueError("x")])
  def test_all_or_none(self, tmp_path, error):
    (tmp_path / "a").write_text("precious")

    def fail(path):
      path.write_text("half")
      raise error

    is_mistake = isinstance(error, OSError)
    with pytest.raises(
      errors.FieldError if is_mistake else ValueError,
      match="second must be .* found .*/b: No space" if is_mistake else "x",
    ):
      output_files.write(
        {
          "first": (f"{tmp_path}/a", _write("new")),
          "second": (f"{tmp_path}/b", fail),
        }
      )
    assert (tmp_path / "a").read_text() == "precious"
    assert os.listdir(tmp_path) == ["a"]

  @pytest.mark.parametrize("has_links", [True, False])
  @pytest.mark.parametrize("former", ["precious", None])
  def test_what_was_moved_is_moved_back(
    self, tmp_path, monkeypatch, former, has_links
  ):
    """The second file is moved first, and the first one cannot be moved."""
    if not has_links:
      monkeypatch.setattr(os, "link", mock.Mock(side_effect=OSError))
    path = tmp_path / "b"
    if former:
      path.write_text(former)
    directory = tmp_path / "a"
    directory.mkdir()
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(
      errors.FieldError, match=r"first must be .* found .*/a: Is a dir"
    ):
      output_files.write(
        {
          "first": (os.fspath(directory), _write("new")),
          "second": (os.fspath(path), _write("new")),
        }
      )
    assert sorted(os.listdir(tmp_path)) == before
    assert not former or path.read_text() == former

  def test_files_are_replaced_and_nothing_else_is_left(self, tmp_path):
    paths = {name: tmp_path / name for name in ("first", "second")}
    for path in paths.values():
      path.write_text("old")
    output_files.write(
      {name: (os.fspath(path), _write("new")) for name, path in paths.items()}
    )
    assert [path.read_text() for path in paths.values()] == ["new", "new"]
    assert sorted(os.listdir(tmp_path)) == list(paths)
