"""Tests of archives that are damaged, or not what their checksums say."""

import pytest

from tasks.prepare import image_search
from tasks.prepare import inaturalist
from tests.tasks.prepare import made_up
from tff_fedemb import errors


class TestChecksums:
  def test_tars_that_differ_are_all_named(self, source, output):
    for name in made_up.GLD_TARS:
      (source / f"md5.{name[:-4]}.txt").write_text("0" * 32)
    with pytest.raises(errors.DataError) as caught:
      made_up.prepare_gld(source, output)
    message = str(caught.value)
    assert f"{source}/images_000.tar must have MD5 {'0' * 32}" in message
    assert f"{source}/images_007.tar must have MD5 {'0' * 32}" in message
    assert not (output / "gld160k").exists()

  def test_tar_that_is_fetched_again(self, source, output):
    path = source / "images_007.tar"
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[700] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(errors.DataError, match="images_007"):
      made_up.prepare_gld(source, output)
    path.write_bytes(whole)
    assert made_up.prepare_gld(source, output)

  def test_tar_without_checksum_is_told(self, source, output, capsys):
    (source / "md5.images_007.txt").unlink()
    assert made_up.prepare_gld(source, output)
    told = capsys.readouterr().out
    assert "1 of 2 archives have one; none: images_007.tar." in told

  @pytest.mark.parametrize("text", ["", "abc", "<html>"])
  def test_checksum_file_that_is_none(self, source, output, text):
    (source / "md5.images_000.txt").write_text(text)
    with pytest.raises(errors.DataError, match=r"md5\.images_000"):
      made_up.prepare_gld(source, output)

  def test_compressed_archive(self, tmp_path, output):
    source = tmp_path / "source"
    made_up.write_inaturalist(source, archived=True)
    right = made_up.md5_of(source)
    wrong = right | {"train_val_images.tar.gz": "0" * 32}
    with pytest.raises(errors.DataError, match="train_val_images"):
      made_up.prepare_inaturalist(source, output, known_md5=wrong)
    assert made_up.prepare_inaturalist(source, output, known_md5=right)

  def test_table(self, tmp_path):
    source = tmp_path / "source"
    made_up.write_inaturalist(source, archived=True)
    with pytest.raises(
      errors.DataError,
      match=r"iNaturalist_train\.csv must have MD5 63d5a4",
    ):
      inaturalist.create_jobs(source)


class TestDamagedArchives:
  @pytest.mark.parametrize("size", [0, 700, 3000, -1024])
  def test_tar_that_was_cut_off(self, source, output, size):
    path = source / "images_007.tar"
    content = path.read_bytes()
    if size == -1024:  # Right after the last image.
      size = len(content.rstrip(b"\0")) // 512 * 512 + 512
    path.write_bytes(content[:size])
    (source / "md5.images_007.txt").unlink()
    with pytest.raises(errors.DataError) as caught:
      made_up.prepare_gld(source, output)
    assert f"{path} must be a whole tar archive" in str(caught.value)

  @pytest.mark.parametrize("size", [0, 5, 2000, -4])
  def test_compressed_tar_that_was_cut_off(
    self, tmp_path, output, monkeypatch, size
  ):
    # As in a large archive, its end is not read along with its images.
    monkeypatch.setattr(image_search, "_CHUNK", 512)
    source = tmp_path / "source"
    made_up.write_inaturalist(source, archived=True)
    path = source / "train_val_images.tar.gz"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(errors.DataError) as caught:
      made_up.prepare_inaturalist(source, output)
    assert f"{path} must be a whole tar archive" in str(caught.value)
