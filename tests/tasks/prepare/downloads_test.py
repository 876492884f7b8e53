"""Tests of checksums, of archives that are damaged, and of what is said."""

import hashlib
import re

import pytest

from tasks.prepare import conversion
from tasks.prepare import downloads
from tasks.prepare import inaturalist
from tests.tasks.prepare import made_up
from tff_fedemb import errors

_MD5 = "0123456789abcdef0123456789abcdef"
_KNOWN = downloads.KNOWN_MD5


def test_md5_file(tmp_path):
  for text in (_MD5, f"{_MD5}\n", f"{_MD5.upper()}  images_000.tar\n"):
    (tmp_path / "md5.txt").write_text(text)
    assert downloads.read_md5_file(tmp_path / "md5.txt") == _MD5
  for text in ("", "abc", "<html>"):
    (tmp_path / "md5.txt").write_text(text)
    with pytest.raises(errors.DataError, match=r"md5\.txt must start with"):
      downloads.read_md5_file(tmp_path / "md5.txt")


def test_known_md5_are_md5():
  for md5 in _KNOWN.values():
    assert re.fullmatch("[0-9a-f]{32}", md5)


def test_numbers_and_names_as_they_are_told():
  told = [downloads.format_bytes(n) for n in (999, 1000, 186e9, 2e15)]
  assert told == ["999 B", "1.0 kB", "186.0 GB", "2000.0 TB"]
  assert downloads.format_names("ab") == "a, b"
  assert downloads.format_names("abcde") == "a, b, c and 2 more"


class TestChecksums:
  def test_tars_that_differ_are_all_named(self, source, output):
    notes = [source / f"md5.{name[:-4]}.txt" for name in made_up.GLD_TARS]
    right = [note.read_text() for note in notes]
    for note in notes:
      note.write_text("0" * 32)
    with pytest.raises(errors.DataError) as caught:
      made_up.prepare_gld(source, output)
    for name in made_up.GLD_TARS:
      assert f"{source / name} must have MD5 {'0' * 32}" in str(caught.value)
    assert not (output / "gld160k").exists()
    for note, text in zip(notes, right, strict=True):
      note.write_text(text)
    assert made_up.prepare_gld(source, output)

  def test_tar_without_checksum_is_told(self, source, output, capsys):
    (source / "md5.images_007.txt").unlink()
    assert made_up.prepare_gld(source, output)
    told = capsys.readouterr().out
    assert "1 of 2 archives have one; none: images_007.tar." in told

  def test_of_compressed_archive_and_of_table(
    self, tmp_path, output, monkeypatch
  ):
    source, name = tmp_path / "source", "train_val_images.tar.gz"
    made_up.write_inaturalist(source, archived=True)
    right = hashlib.md5((source / name).read_bytes()).hexdigest()
    monkeypatch.setitem(downloads.KNOWN_MD5, name, "0" * 32)
    with pytest.raises(errors.DataError, match=f"{name} must have MD5 000"):
      made_up.prepare_inaturalist(source, output)
    monkeypatch.setitem(downloads.KNOWN_MD5, name, right)
    assert made_up.prepare_inaturalist(source, output)
    monkeypatch.setattr(downloads, "KNOWN_MD5", _KNOWN)
    with pytest.raises(errors.DataError, match=r"csv must have MD5 63d5"):
      inaturalist.create_jobs(source)


@pytest.mark.parametrize(
  ("name", "size"),
  [("images_007.tar", size) for size in (0, 700, 3000, None)]
  + [("train_val_images.tar.gz", size) for size in (0, 5, 2000, -4)],
)
def test_tar_that_was_cut_off(source, output, monkeypatch, name, size):
  # As in a large archive, its end is not read along with its images.
  monkeypatch.setattr(conversion, "_CHUNK", 512)
  prepare = made_up.prepare_gld
  if name.endswith(".gz"):
    source, prepare = source / "compressed", made_up.prepare_inaturalist
    made_up.write_inaturalist(source, archived=True)
  content = (source / name).read_bytes()
  if size is None:  # Right after the last image.
    size = len(content.rstrip(b"\0")) // 512 * 512 + 512
  (source / name).write_bytes(content[:size])
  with pytest.raises(errors.DataError, match=f"{name} must be a whole tar"):
    prepare(source, output)
