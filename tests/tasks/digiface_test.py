"""Tests of the DigiFace task, on the publishers' files and on prepared ones."""

import io
import shutil

import numpy as np
from PIL import Image
import pytest

from tasks import digiface
from tasks.prepare import digiface as preparation
from tasks.prepare import output
from tests.tasks import clients
from tests.tasks import faces

_CONTENTS = faces.create_contents()
_OTHER = faces.create_png(1000)
_TRAIN = [s for s in range(8) if preparation.split_of_subject(s) == "train"]


@pytest.fixture
def create(tmp_path):
  return clients.creator(digiface.create_digiface_task, tmp_path)


def _decode(content):
  return np.asarray(Image.open(io.BytesIO(content)))


def _copies(tmp_path):
  return list((tmp_path / "cache").glob("digiface_*/*"))


@pytest.mark.parametrize(
  ("layout", "variant"),
  [
    ("subjects", "all"),
    ("mixture", "5_images"),
    ("prepared", "all"),
  ],
)
def test_every_layout_gives_the_same_users_and_images(
  tmp_path, create, layout, variant
):
  data = tmp_path / "data"
  if layout == "prepared":
    faces.LAYOUTS["zips"](tmp_path / "zips", _CONTENTS)
    for job in preparation.find_jobs(
      tmp_path / "zips", variant, field="source_dir"
    ):
      output.Preparation(job, data).run()
  else:
    faces.LAYOUTS[layout](data, _CONTENTS)
  task = create(task_variant=variant)
  assert len(_copies(tmp_path)) == (layout != "prepared")
  subjects = sorted(faces.SUBJECTS.get(variant, _CONTENTS))
  by_split = {
    split: [s for s in subjects if preparation.split_of_subject(s) == split]
    for split in preparation.SPLITS
  }
  assert clients.user_ids(task) == [str(s) for s in by_split["train"]]
  assert task.num_train_classes == len(by_split["train"])
  for label, subject in enumerate(by_split["train"]):
    images, labels = clients.read_client(task, str(subject))
    assert images.tolist() == _CONTENTS[subject]
    assert labels.tolist() == [label] * len(images)
  for split in ("validation", "test"):
    held_out = task.load_images(split)
    np.testing.assert_array_equal(
      held_out.labels, np.repeat(by_split[split], faces.IMAGES)
    )
    np.testing.assert_array_equal(
      held_out.images[:],
      [_decode(c) for subject in by_split[split] for c in _CONTENTS[subject]],
    )
  assert not task.bad_examples.lines
  assert task.warnings == ()
  assert task.image_shape == (112, 112, 3)
  assert task.one_class_per_user and task.held_out_classes_are_new
  assert not task.evaluation_on_training_users
  assert f"{len(by_split['train'])} for training" in task.split_description


class TestCopy:
  def test_is_used_again_when_the_data_move_and_renewed_with_them(
    self, tmp_path, create, monkeypatch, capfd
  ):
    faces.LAYOUTS["zips"](tmp_path / "data", _CONTENTS)
    before = clients.user_ids(create())
    (copy,) = _copies(tmp_path)
    shutil.move(tmp_path / "data", tmp_path / "elsewhere")
    with monkeypatch.context() as patch:
      patch.setattr(output, "Preparation", None)
      assert clients.user_ids(create(data="elsewhere")) == before
    damage = {"0/0.png": _OTHER}
    faces.LAYOUTS["zips"](tmp_path / "data", _CONTENTS, damage=damage)
    capfd.readouterr()
    images, _ = clients.read_client(create(), "0")
    assert images.tolist() == [damage["0/0.png"], *_CONTENTS[0][1:]]
    assert len(_copies(tmp_path)) == 2
    out, err = capfd.readouterr()
    assert not out
    assert f"{copy.parent} is of other data or older" in err

  def test_needs_space_that_can_be_written(self, tmp_path, create, monkeypatch):
    faces.LAYOUTS["zips"](tmp_path / "data", _CONTENTS)
    usage = shutil.disk_usage(tmp_path)._replace(free=5_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(ValueError, match=r"^cache_dir must have .* 5\.00kB in"):
      create()
    assert not (tmp_path / "cache").exists()
    monkeypatch.undo()
    (tmp_path / "cache").write_text("not a directory")
    with pytest.raises(ValueError, match=r"^cache_dir must be writable"):
      create()


class TestBadExamples:
  @pytest.mark.parametrize(
    ("damage", "line", "kept"),
    [
      (
        {"0/1.png": b"no image"},
        "train/0 record 1: not an image that can be decoded",
        (0, 2),
      ),
      # As if the zip's checksum were of another.
      (
        {"0/1.png": _OTHER},
        "train/0: image subjects_0-15_3_imgs.zip/0/1.png: cannot be read: Bad",
        (0, 2),
      ),
      # Held out, where there are enough others.
      (
        {f"4/{k}.png": None for k in range(faces.IMAGES)},
        "subjects_0-15_3_imgs.zip/4: no image",
        (0, 1, 2),
      ),
    ],
  )
  def test_all_are_named_or_left_out(
    self, tmp_path, create, damage, line, kept
  ):
    many = _CONTENTS | {s: _CONTENTS[0] for s in range(8, 16)}
    path = tmp_path / "data" / "subjects_0-15_3_imgs.zip"
    faces.write_zip(path, many, range(16), damage=damage)
    path.write_bytes(path.read_bytes().replace(_OTHER, bytes(len(_OTHER))))
    # The copy made with one policy serves the other.
    for _ in range(2):
      text = clients.read_error(create)
      assert text.startswith("data must be readable, found ")
      assert line in text
      task = create(on_bad_example="skip")
      assert len(task.bad_examples) == 1
    assert len(_copies(tmp_path)) == 1
    self._check_clients(task, kept)

  def _check_clients(self, task, kept):
    """Checks all users, of whom the first has some images."""
    assert clients.user_ids(task)[:4] == [str(subject) for subject in _TRAIN]
    for label, subject in enumerate(_TRAIN):
      rows = range(faces.IMAGES) if label else kept
      images, labels = clients.read_client(task, str(subject))
      assert images.tolist() == [_CONTENTS[subject][row] for row in rows]
      assert labels.tolist() == [label] * len(rows)
    everybody = task.train_users.client_id(range(4))
    labels = [0] * len(kept) + [1] * 3 + [2] * 3 + [3] * 3
    assert clients.read_client(task, everybody)[1].tolist() == labels
    assert task.find_bad_examples(everybody) == []

  def test_one_image_is_kept_or_left_out(self, tmp_path, create):
    damage = {f"{s}/{k}.png": None for s in (0, 2) for k in (1, 2)}
    faces.LAYOUTS["subjects"](tmp_path / "data", _CONTENTS, damage=damage)
    held_out = "1 of the identities held out have one image only: 2."
    task = create()
    assert not task.bad_examples.lines
    assert task.warnings[0].startswith("1 of 4 users have one image only")
    assert task.warnings[1:] == (held_out,)
    self._check_clients(task, (0,))
    task = create(on_bad_example="skip")
    assert task.bad_examples.lines == (
      "train/0: left out, one image, and two are needed",
    )
    assert task.warnings == (held_out,)
    self._check_clients(task, ())
    assert np.sum(task.load_images("test").labels == 2) == 1

  def test_too_few_are_left(self, tmp_path, create):
    # Both identities for test.
    damage = {f"{s}/{k}.png": b"?" for s in (2, 6) for k in range(faces.IMAGES)}
    faces.LAYOUTS["zips"](tmp_path / "data", _CONTENTS, damage=damage)
    assert "data must be readable" in clients.read_error(create)
    assert "found 0 for test" in clients.read_error(
      create, on_bad_example="skip"
    )


def test_missing_data_are_told(tmp_path, create):
  (tmp_path / "data").mkdir()
  (tmp_path / "data" / "images.zip").write_text("another")
  text = clients.read_error(create)
  assert text.startswith("data_dir must hold DigiFace images")
  assert "github.com/microsoft/DigiFace1M (for non-commercial" in text
  text = clients.read_error(create, task_variant="99_images")
  assert text.startswith("task_variant must be one of 72_images, 5_images, all")
  faces.write_folders(tmp_path / "data", _CONTENTS, [0, 1, 2])
  text = clients.read_error(create, task_variant="5_images")
  assert "hold identities of 5_images, found only 72_images" in text
  assert clients.read_error(create).startswith(
    "data_dir must hold at least 2 identities"
  )
  assert not (tmp_path / "cache").exists()
  # The data that exist are the default.
  faces.write_folders(tmp_path / "few", _CONTENTS, range(100_000, 100_008))
  assert "5_images" in create(data="few").split_description
