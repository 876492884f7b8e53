"""Tests of DigiFace's files, its split and its preparation."""

import collections
import json
import zipfile

import pytest

from tasks.prepare import digiface
from tasks.prepare import output
from tasks.prepare import preparing
from tests.tasks import faces
from tests.tasks.prepare import made_up
from tff_fedemb import errors

_CONTENTS = faces.create_contents()


@pytest.fixture
def prepare(tmp_path):
  def run(folder="output", **options):
    config = preparing.PreparationConfig(
      task="digiface",
      source_dir=tmp_path / "source",
      output_dir=tmp_path / folder,
      **options,
    )
    preparing.execute(config)
    return tmp_path / folder

  return run


def _find(folder):
  """The job of all that there is."""
  (job,) = digiface.create_jobs(folder, "all")
  return job


def test_images_are_told_from_other_files_and_sorted_by_number(tmp_path):
  path = faces.write_zip(tmp_path / faces.MANY, _CONTENTS, range(1, 8))
  with zipfile.ZipFile(path, "a") as archive:
    for name in ("10.PNG", "9.png", "._9.png", "notes.txt"):
      archive.writestr(f"0/{name}", b"12")
    archive.writestr("readme.txt", b"of no subject")
  rows = _find(tmp_path).look().files["train/0"]
  assert rows == [
    output.Row(f"{path.name}/0/{k}", 0) for k in ("9.png", "10.PNG")
  ]


@pytest.mark.parametrize(
  ("subjects", "message"),
  [
    ((), " must hold <subject id>/<k>.png .* found none"),
    (range(8), " must hold .* of subjects 0 to 5, .* found subject 6"),
    (range(6), "/3 must hold another subject than .*_imgs/3, found 3 in both"),
  ],
)
def test_source_of_other_identities_or_none(tmp_path, subjects, message):
  faces.write_folders(tmp_path / "subjects_0-4_3_imgs", _CONTENTS, [3])
  path = tmp_path / "subjects_0-5_3_imgs.zip"
  faces.write_zip(path, _CONTENTS, subjects)
  with pytest.raises(errors.DataError, match=f"{path}{message}"):
    _find(tmp_path).look()


def test_the_first_subject_of_two_sources_is_named(tmp_path):
  # A set of these two numbers begins with the larger one.
  for last in (100_000, 100_001):
    folder = tmp_path / f"subjects_0-{last}_3_imgs"
    faces.write_folders(folder, _CONTENTS, [100_000, 3])
  with pytest.raises(errors.DataError, match="found 3 in both"):
    _find(tmp_path).look()


def test_a_subject_in_two_folders_of_a_zip_is_refused(tmp_path):
  path = faces.write_zip(tmp_path / faces.MANY, _CONTENTS, range(8))
  with zipfile.ZipFile(path, "a") as archive:
    archive.writestr("0005/1.png", b"12")
  message = f"{path}/0005 must hold another subject than {path.name}/5"
  with pytest.raises(errors.DataError, match=message):
    _find(tmp_path).look()


def test_split_is_the_published_one_in_its_shares():
  counts = collections.Counter(map(digiface.split_of_subject, range(10_000)))
  # Binomial with a standard deviation of 30.
  assert abs(counts["validation"] - 1_000) < 100
  assert abs(counts["test"] - 1_000) < 100
  # Whoever changes the split changes every result. Eight identities from either
  # start are enough.
  for first, expected in ((0, "rreraaer"), (100_000, "eeaearrr")):
    splits = [digiface.split_of_subject(first + i) for i in range(8)]
    assert "".join(split[1] for split in splits) == expected
    numbers = collections.Counter(splits)
    assert min(numbers.values()) >= 2 and set(numbers) == set(digiface.SPLITS)


def test_images_and_users_that_are_left_out(tmp_path, prepare):
  damage = {f"{s}/{k}.png": None for s in (1, 2) for k in range(faces.IMAGES)}
  path = tmp_path / "source" / faces.MANY
  faces.write_zip(path, _CONTENTS, range(8), damage=damage)
  content = path.read_bytes()
  # Two images of users are not what the zip's checksums say.
  for image in (_CONTENTS[0][1], _CONTENTS[3][0]):
    content = content.replace(image, image[:-20] + bytes(20), 1)
  path.write_bytes(content)
  with pytest.raises(errors.DataError, match=f"{faces.MANY}/2: no image"):
    prepare()
  folder = prepare(on_bad_example="skip")
  report = json.loads((folder / "72_images/preparation.json").read_text())
  assert [line.rsplit(": ", 1)[0] for line in report["left_out"]] == [
    f"train/0: image {faces.MANY}/0/1.png: cannot be read",
    f"train/3: image {faces.MANY}/3/0.png: cannot be read",
  ]
  assert report["num_users"] == 4
  # A user without any keeps a file, and the others keep their labels.
  records = made_up.read_records(folder / "72_images")
  assert records["train/1"] == []
  assert records["train/3"][0][1] == 2
