"""Tests of DigiFace's split and of its preparation, from zips to records."""

import collections
import json
import os

import pytest

from tasks.prepare import digiface
from tasks.prepare import preparing
from tests.tasks import faces
from tests.tasks.prepare import made_up
from tff_fedemb import errors
from tff_fedemb.data import tfrecord_files


@pytest.fixture(scope="module")
def contents():
  return faces.create_contents()


@pytest.fixture
def prepare(tmp_path):
  def run(output="output", **options):
    config = preparing.PreparationConfig(
      task="digiface",
      source_dir=tmp_path / "source",
      output_dir=tmp_path / output,
      **options,
    )
    preparing.execute(config)
    return tmp_path / output

  return run


class TestSplit:
  def test_shares_are_as_described(self):
    counts = collections.Counter(map(digiface.split_of_subject, range(10_000)))
    # Binomial with a standard deviation of 30.
    assert abs(counts["validation"] - 1_000) < 100
    assert abs(counts["test"] - 1_000) < 100
    assert set(counts) == {"train", "validation", "test"}

  @pytest.mark.parametrize("first", [0, 100_000])
  def test_eight_identities_are_enough(self, first):
    counts = collections.Counter(
      map(digiface.split_of_subject, range(first, first + 8))
    )
    assert min(counts.values()) >= 2 and len(counts) == 3

  def test_it_is_the_one_that_was_published(self):
    # Whoever changes the split changes every result.
    splits = [digiface.split_of_subject(subject)[:2] for subject in range(8)]
    assert splits == ["tr", "tr", "te", "tr", "va", "va", "te", "tr"]


def test_published_zips_hold_all_identities():
  sizes = {72: 0, 5: 0}
  for first, last, num_images in digiface.PUBLISHED:
    sizes[num_images] += last - first + 1
  # "100 K": the names of the zips add up to one less.
  assert sizes == {72: 10_000, 5: 99_999}


@pytest.mark.parametrize(
  ("variant", "parts"),
  [(None, ("72_images", "5_images")), ("5_images", None), ("all", None)],
)
def test_files_are_those_of_the_photo_tasks(
  tmp_path, prepare, contents, capsys, variant, parts
):
  faces.LAYOUTS["zips"](tmp_path / "source", contents)
  output = prepare(variant=variant)
  assert sorted(os.listdir(output)) == sorted(parts or [variant])
  for part in parts or [variant]:
    subjects = faces.SUBJECTS.get(part, contents)
    train, held_out = [], []
    for subject in sorted(subjects):
      is_trained = digiface.split_of_subject(subject) == "train"
      (train if is_trained else held_out).append(subject)
    expected = {
      f"train/{subject}": [(c, label) for c in contents[subject]]
      for label, subject in enumerate(train)
    }
    expected["test.tfRecord"] = [
      (content, subject)
      for subject in held_out
      for content in contents[subject]
    ]
    found = {
      name: [
        (dict(features)["image/encoded_jpeg"], dict(features)["class"])
        for features in (
          [(key, (bytes_ or ints)[0]) for key, bytes_, ints in record]
          for record in records
        )
      ]
      for name, records in made_up.read_records(output / part).items()
    }
    assert found == expected
    report = json.loads((output / part / "preparation.json").read_text())
    assert report["num_users"] == len(train)
    assert report["num_images"] == len(subjects) * faces.IMAGES
    assert report["left_out"] == report["warnings"] == []
  told = capsys.readouterr().out
  assert "Zips: 0 of 8 found, missing subjects_0-1999_72_imgs.zip," in told


def test_dry_run_tells_and_writes_nothing(tmp_path, prepare, contents, capsys):
  (tmp_path / "source").mkdir()
  source = tmp_path / "source" / "subjects_0-1999_72_imgs.zip"
  faces.write_zip(source, contents, range(8))
  assert not prepare(dry_run=True).exists()
  told = capsys.readouterr().out
  size = sum(len(c) for s in range(8) for c in contents[s]) / 1000
  assert f"{source.name}: 8 subjects, 24 images, {size:.1f} kB." in told
  assert "Zips: 1 of 8 found, missing subjects_2000-3999_72_imgs.zip" in told
  needed = float(told.split("Disk: ")[1].split(" kB")[0])
  output = prepare(variant="72_images")
  written = sum(
    len(content)
    for name, content in made_up.read_files(output).items()
    if not name.endswith(".json")
  )
  # Each of the files may fill up to a block.
  assert written / 1000 <= needed <= written / 1000 + 7 * 4.1


@pytest.mark.parametrize("call", [1, 3, 5])
def test_killed_it_goes_on(tmp_path, prepare, contents, monkeypatch, call):
  faces.LAYOUTS["zips"](tmp_path / "source", contents)
  prepare("reference", variant="72_images")
  write, calls = tfrecord_files.write_records, []

  def write_until_killed(path, records):
    calls.append(path)
    if len(calls) == call:  # Of four users and the test set.
      raise KeyboardInterrupt
    write(path, records)

  with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
    patch.setattr(tfrecord_files, "write_records", write_until_killed)
    prepare(variant="72_images")
  assert os.listdir(tmp_path / "output") == ["72_images.partial"]
  prepare(variant="72_images")
  assert made_up.read_files(tmp_path / "output") == made_up.read_files(
    tmp_path / "reference"
  )


def _write_damaged(path, contents, *, damage):
  """Two images of users are not what the zip's checksums say."""
  faces.write_zip(path, contents, range(8), damage=damage)
  content = path.read_bytes()
  for image in (contents[0][1], contents[3][0]):
    content = content.replace(image, image[:-20] + bytes(20), 1)
  path.write_bytes(content)


def _without(subject):
  return {f"{subject}/{k}.png": None for k in range(faces.IMAGES)}


class TestBad:
  def test_images_are_all_named(self, tmp_path, prepare, contents):
    path = tmp_path / "source" / faces.MANY
    _write_damaged(path, contents, damage=_without(2))
    with pytest.raises(errors.DataError, match=f"{faces.MANY}/2: no image"):
      prepare()
    _write_damaged(path, contents, damage=None)
    with pytest.raises(errors.DataError, match="2 bad examples") as caught:
      prepare()
    for name in ("0/1.png", "3/0.png"):
      line = f"image {faces.MANY}/{name}: cannot be read: Bad CRC-32"
      assert line in str(caught.value)

  def test_images_are_left_out(self, tmp_path, prepare, contents):
    path = tmp_path / "source" / faces.MANY
    _write_damaged(path, contents, damage=_without(2) | _without(1))
    output = prepare(on_bad_example="skip")
    report = json.loads((output / "72_images/preparation.json").read_text())
    assert [line.split(": ")[:2] for line in report["left_out"]] == [
      ["train/0", f"image {faces.MANY}/0/1.png"],
      ["train/3", f"image {faces.MANY}/3/0.png"],
    ]
    assert report["without_images"] == [f"{faces.MANY}/{s}" for s in (1, 2)]
    assert report["num_users"] == 4
    # A user without any keeps a file, and the others keep their labels.
    records = made_up.read_records(output / "72_images")
    assert records["train/1"] == []
    assert ("class", [], [2]) in records["train/3"][0]


def test_too_little_or_too_much(tmp_path, prepare, contents):
  source = tmp_path / "source"
  source.mkdir()
  with pytest.raises(
    errors.FieldError, match=r"hold DigiFace images, .*DigiFace1M"
  ):
    prepare()
  faces.write_folders(source, contents, [5])
  with pytest.raises(errors.FieldError, match="at least 2 identities for each"):
    prepare()
  path = faces.write_zip(source / faces.MANY, contents, range(8))
  with pytest.raises(
    errors.DataError, match=f"must hold other subjects than {path}, found 5"
  ):
    prepare()
  assert not (tmp_path / "output").exists()


def test_other_sources_are_not_mixed_in(tmp_path, prepare, contents):
  path = tmp_path / "source" / faces.MANY
  faces.write_zip(path, contents, range(8))
  prepare()
  faces.write_zip(path, contents, range(8), damage={"0/0.png": b"new"})
  with pytest.raises(
    errors.DataError, match=rf"must be of {faces.MANY} \(fingerprint"
  ):
    prepare()
