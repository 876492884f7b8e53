"""Tests of the DigiFace task on a few drawn faces."""

import collections
import errno
import io
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import zipfile

import numpy as np
from PIL import Image
import pytest
import tensorflow as tf

from tasks import digiface
from tasks import digiface_files
from tasks import task as task_lib
from tasks.synthetic import digiface as synthetic
from tff_fedemb import errors
from tff_fedemb.data import bad_examples
from tff_fedemb.data import pipelines
from tff_fedemb.data import sqlite_examples

_IMAGES = 3
_MANY = "subjects_0-7_3_imgs.zip"
_FEW = "subjects_100000-100007_5_imgs.zip"


@pytest.fixture(scope="module")
def zips(tmp_path_factory):
  """A folder with a zip of each part, 8 identities each."""
  directory = tmp_path_factory.mktemp("zips")
  paths = synthetic.write_digiface(
    directory, num_users=16, seed=1, images_per_user=_IMAGES
  )
  assert [os.path.basename(path) for path in paths] == [_MANY, _FEW]
  return directory


@pytest.fixture(scope="module")
def contents(zips):
  """Contents of the images by subject, of both parts."""
  found = collections.defaultdict(list)
  for name in (_MANY, _FEW):
    with zipfile.ZipFile(zips / name) as archive:
      for member in archive.namelist():
        found[int(member.split("/")[0])].append(archive.read(member))
  return dict(found)


@pytest.fixture
def create(tmp_path):
  def create_task(variant=None, *, image_size=None, on_bad_example="fail"):
    return digiface.create_digiface_task(
      task_lib.TaskConfig(
        os.fspath(tmp_path / "data"),
        os.fspath(tmp_path / "cache"),
        task_variant=variant,
        image_size=image_size,
        on_bad_example=on_bad_example,
      )
    )

  return create_task


def _write_zip(path, contents, subjects, *, damage=None):
  """Writes subjects; `damage` changes the contents by name, or removes them."""
  path.parent.mkdir(parents=True, exist_ok=True)
  damage = damage or {}
  with zipfile.ZipFile(path, "w") as archive:
    for subject in subjects:
      archive.writestr(f"{subject}/", b"")
      for number, content in enumerate(contents[subject]):
        content = damage.get(f"{subject}/{number}.png", content)
        if content is not None:
          archive.writestr(f"{subject}/{number}.png", content)
  return path


def _write_folders(path, contents, subjects, *, damage=None):
  damage = damage or {}
  for subject in subjects:
    (path / str(subject)).mkdir(parents=True)
    for number, content in enumerate(contents[subject]):
      content = damage.get(f"{subject}/{number}.png", content)
      if content is not None:
        (path / str(subject) / f"{number}.png").write_bytes(content)
  return path


def _write_zips(data, contents, *, damage=None):
  _write_zip(data / _MANY, contents, range(8), damage=damage)
  _write_zip(data / _FEW, contents, range(100_000, 100_008), damage=damage)


def _write_named_folders(data, contents, *, damage=None):
  for name, subjects in ((_MANY, range(8)), (_FEW, range(100_000, 100_008))):
    _write_folders(
      data / name.removesuffix(".zip"), contents, subjects, damage=damage
    )


def _write_subjects(data, contents, *, damage=None):
  _write_folders(data, contents, contents, damage=damage)
  (data / "readme").mkdir()
  (data / "notes.txt").write_text("not a face")
  (data / "3" / "notes.txt").write_text("not a face")


def _write_mixture(data, contents, *, damage=None):
  _write_zip(
    data / "subjects_6-7_3_imgs.zip", contents, range(6, 8), damage=damage
  )
  _write_folders(
    data / "subjects_0-2_3_imgs", contents, range(3), damage=damage
  )
  _write_folders(
    data, contents, [3, 4, 5, *range(100_003, 100_008)], damage=damage
  )
  _write_zip(
    data / "subjects_100000-100002_5_imgs.zip",
    contents,
    range(100_000, 100_003),
    damage=damage,
  )


_LAYOUTS = {
  "zips": _write_zips,
  "named_folders": _write_named_folders,
  "subjects": _write_subjects,
  "mixture": _write_mixture,
}


def _user_ids(task):
  return [task.train_users.user_id(i) for i in range(len(task.train_users))]


def _read_client(task, client_id):
  """Encoded images and labels of a virtual client."""
  batch = pipelines.gather(task.create_client_dataset(tf.constant(client_id)))
  return batch["x"].numpy().tolist(), batch["y"].numpy().tolist()


def _decode(content):
  return np.asarray(Image.open(io.BytesIO(content)))


def _noise_png(seed, size=(112, 112)):
  content = io.BytesIO()
  pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), np.uint8)
  Image.fromarray(pixels).save(content, "PNG")
  return content.getvalue()


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
    splits = [digiface.split_of_subject(subject) for subject in range(8)]
    assert splits == [
      "train",
      "train",
      "test",
      "train",
      "validation",
      "validation",
      "test",
      "train",
    ]


@pytest.mark.parametrize(
  ("layout", "variant"),
  [
    *((layout, "all") for layout in sorted(_LAYOUTS)),
    ("zips", "72_images"),
    ("mixture", "5_images"),
  ],
)
def test_every_layout_gives_the_same_users_and_images(
  tmp_path, create, contents, layout, variant
):
  _LAYOUTS[layout](tmp_path / "data", contents)
  task = create(variant)
  subjects = {
    "72_images": list(range(8)),
    "5_images": list(range(100_000, 100_008)),
    "all": sorted(contents),
  }[variant]
  by_split = {
    split: [s for s in subjects if digiface.split_of_subject(s) == split]
    for split in ("train", "validation", "test")
  }
  assert _user_ids(task) == [str(s) for s in by_split["train"]]
  assert task.num_train_classes == len(by_split["train"])
  for label, subject in enumerate(by_split["train"]):
    images, labels = _read_client(task, str(subject))
    assert images == contents[subject]
    assert labels == [label] * len(images)
  for split in ("validation", "test"):
    held_out = task.load_images(split)
    order = sorted(by_split[split], key=str)
    np.testing.assert_array_equal(
      held_out.labels,
      [subject for subject in order for _ in contents[subject]],
    )
    np.testing.assert_array_equal(
      held_out.images[:],
      [_decode(c) for subject in order for c in contents[subject]],
    )
  assert not task.bad_examples.lines
  assert task.warnings == ()
  assert f"{len(by_split['train'])} for training" in task.split_description


def test_what_the_task_says(tmp_path, create, contents):
  _write_zips(tmp_path / "data", contents)
  task = create()
  assert task.name == "digiface"
  assert task.image_shape == (112, 112, 3)
  assert task.one_class_per_user
  assert not task.evaluation_on_training_users
  assert "72_images" in task.split_description
  assert "keyed hash" in task.split_description


def test_the_part_with_5_images_alone_is_the_default(
  tmp_path, create, contents
):
  _write_folders(tmp_path / "data", contents, range(100_000, 100_008))
  assert "5_images" in create().split_description


def test_an_identity_stays_in_its_split_when_zips_are_added(
  tmp_path, create, contents
):
  _write_zip(tmp_path / "data" / _MANY, contents, range(8))
  before = _user_ids(create("all"))
  _write_zip(tmp_path / "data" / _FEW, contents, range(100_000, 100_008))
  assert _user_ids(create("all"))[: len(before)] == before


def test_a_pass_over_a_virtual_client_as_in_training(
  tmp_path, create, contents
):
  _write_zips(tmp_path / "data", contents)
  task = create(image_size=28)
  client_id = task.train_users.client_id([0, 1, 3])

  @tf.function
  def read(client_id):
    batch = pipelines.gather(task.create_client_dataset(client_id))
    return task.decode_images(batch["x"]), batch["y"]

  images, labels = (x.numpy() for x in read(tf.constant(client_id)))
  assert images.shape == (3 * _IMAGES, 28, 28, 3)
  assert images.dtype == np.uint8
  np.testing.assert_array_equal(labels, np.repeat([0, 1, 3], _IMAGES))
  # Four pixels wide and high make one.
  expected = _decode(contents[int(task.train_users.user_id(1))][0])
  expected = expected.reshape(28, 4, 28, 4, 3).mean(axis=(1, 3))
  assert np.abs(images[_IMAGES] - expected).mean() < 4
  assert task.find_bad_examples(client_id) == []


def test_held_out_images_are_read_when_asked_for(
  tmp_path, create, contents, monkeypatch
):
  _write_zips(tmp_path / "data", contents)
  held_out = create(image_size=56).load_images("test")
  read_rows = sqlite_examples.SqliteExamples.read_rows
  asked = []

  def read(examples, rows):
    asked.append(list(rows))
    return read_rows(examples, rows)

  monkeypatch.setattr(sqlite_examples.SqliteExamples, "read_rows", read)
  assert held_out.images.shape == (len(held_out.labels), 56, 56, 3)
  assert not asked
  assert held_out.images[1:3].shape == (2, 56, 56, 3)
  assert asked == [[1, 2]]


def test_damage_to_the_copy_is_named(tmp_path, create, contents):
  _write_zips(tmp_path / "data", contents)
  task = create()
  (copy,) = (tmp_path / "cache").iterdir()
  user_id = _user_ids(task)[2]
  with sqlite3.connect(copy) as connection:
    for split in ("train", "test"):
      connection.execute(
        "UPDATE examples SET serialized_example_proto = ? WHERE rowid ="
        " (SELECT MIN(rowid) + 1 FROM examples WHERE split_name = ? AND"
        " client_id LIKE ?)",
        (
          sqlite_examples.serialize_example({"image": b"?", "label": 2}),
          split,
          user_id if split == "train" else "%",
        ),
      )
  connection.close()
  client_id = task.train_users.client_id([1, 2])
  assert task.find_bad_examples(client_id) == [
    f"subject {user_id} image 1: not an image"
  ]
  held_out = task.load_images("test")
  with pytest.raises(
    errors.DataError, match=f"^subject {held_out.labels[1]} must be"
  ):
    held_out.images[:2]


# Without TensorFlow, which takes seconds to import and has no part in this.
_PRINT_FINGERPRINT = """
import sys, types
for name in ("encoded_images", "sqlite_examples"):
  sys.modules[f"tff_fedemb.data.{name}"] = types.ModuleType(name)
sys.modules["tff_fedemb.data.sqlite_examples"].DataError = ValueError
from tasks import digiface_files
found = digiface_files.find_sources(sys.argv[1])
print(list(found), [s.subjects for part in found.values() for s in part])
print(digiface_files.fingerprint([s for part in found.values() for s in part]))
assert "tensorflow" not in sys.modules
"""


def test_fingerprint_does_not_depend_on_the_order_of_sets(tmp_path, contents):
  _write_subjects(tmp_path / "data", contents)
  # Two seeds for which a set of the names of the parts has different orders.
  printed = {
    subprocess.run(
      [sys.executable, "-c", _PRINT_FINGERPRINT, tmp_path / "data"],
      env=os.environ | {"PYTHONHASHSEED": seed},
      cwd=pathlib.Path(__file__).parents[2],
      capture_output=True,
      text=True,
      check=True,
    ).stdout
    for seed in ("0", "1")
  }
  assert len(printed) == 1
  found = digiface_files.find_sources(tmp_path / "data")
  sources = [source for part in found.values() for source in part]
  assert len(sources) == 2
  assert digiface_files.fingerprint(sources[::-1]) in printed.pop()


class TestCache:
  @pytest.mark.parametrize("layout", ["zips", "mixture"])
  def test_copy_is_reused(
    self, tmp_path, create, contents, layout, monkeypatch
  ):
    _LAYOUTS[layout](tmp_path / "data", contents)
    before = _user_ids(create())
    monkeypatch.setattr(digiface, "_convert", None)
    task = create()
    assert _user_ids(task) == before
    assert len(task.load_images("test").images[:]) >= 2 * _IMAGES
    assert len(os.listdir(tmp_path / "cache")) == 1

  def test_copy_is_found_when_the_data_move(
    self, tmp_path, create, contents, monkeypatch
  ):
    _write_mixture(tmp_path / "data", contents)
    before = _user_ids(create())
    shutil.move(tmp_path / "data", tmp_path / "elsewhere")
    monkeypatch.setattr(digiface, "_convert", None)
    task = digiface.create_digiface_task(
      task_lib.TaskConfig(
        os.fspath(tmp_path / "elsewhere"), os.fspath(tmp_path / "cache")
      )
    )
    assert _user_ids(task) == before

  @pytest.mark.parametrize("layout", ["zips", "mixture"])
  def test_copy_is_renewed_with_a_source(
    self, tmp_path, create, contents, layout
  ):
    _LAYOUTS[layout](tmp_path / "data", contents)
    create()
    shutil.rmtree(tmp_path / "data")
    changed = contents | {
      subject: [_noise_png(subject), *contents[subject][1:]]
      for subject in range(8)
    }
    _LAYOUTS[layout](tmp_path / "data", changed)
    task = create()
    user_id = _user_ids(task)[0]
    assert _read_client(task, user_id)[0] == changed[int(user_id)]

  def test_damaged_copy_is_renewed(self, tmp_path, create, contents):
    _write_zips(tmp_path / "data", contents)
    before = _user_ids(create())
    (copy,) = (tmp_path / "cache").iterdir()
    copy.write_bytes(copy.read_bytes()[:50_000])
    assert _user_ids(create()) == before

  def test_needed_space_is_enough_and_not_far_off(
    self, tmp_path, create, contents, monkeypatch
  ):
    _write_zips(tmp_path / "data", contents)
    create("all")
    (copy,) = (tmp_path / "cache").iterdir()
    sources = [
      source
      for part in digiface_files.find_sources(tmp_path / "data").values()
      for source in part
    ]
    identities = [
      identity
      for source in sources
      for identity in digiface_files.list_identities(source)
    ]
    needed = digiface._require_space(copy, identities)
    assert 0.7 * needed < copy.stat().st_size < needed

  def test_space_is_asked_for_before_anything_is_read(
    self, tmp_path, create, contents, monkeypatch
  ):
    _write_zips(tmp_path / "data", contents)
    usage = shutil.disk_usage(tmp_path)._replace(free=100_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    monkeypatch.setattr(digiface_files, "Reader", None)
    with pytest.raises(
      errors.DataError,
      match=r"--cache_dir must have 0\.00 GB free .* found 0\.00 GB in",
    ):
      create()
    assert not os.listdir(tmp_path / "cache")

  def test_interrupted_conversion_leaves_nothing(
    self, tmp_path, create, contents, monkeypatch
  ):
    _write_zips(tmp_path / "data", contents)

    def interrupt(*unused_args):
      raise KeyboardInterrupt

    monkeypatch.setattr(digiface, "_serialize", interrupt)
    with pytest.raises(KeyboardInterrupt):
      create()
    assert not os.listdir(tmp_path / "cache")

  def test_copies_that_are_not_used_any_more_are_named(
    self, tmp_path, create, contents, capsys
  ):
    def told(variant):
      capsys.readouterr()
      create(variant)
      return capsys.readouterr().err

    cache = tmp_path / "cache"
    _write_zips(tmp_path / "data", contents)
    text = told("all")
    (old,) = cache.iterdir()
    size = f"{old.stat().st_size / 1e9:.2f} GB"
    assert f"The converted copy of DigiFace is {old} ({size})." in text
    assert "no longer" not in told("5_images")
    kept = {old, *cache.glob("*_5_images_*")}
    assert len(kept) == 2
    _write_zip(
      tmp_path / "data" / _MANY, contents, range(8), damage={"0/0.png": None}
    )
    assert "GB)" not in told("5_images")
    text = told("all")
    assert f"{old} ({size}) is no longer used by this data, may be removed" in (
      text
    )
    # Those of another variant of the same data are in use.
    assert text.count("no longer used") == 1
    assert kept < set(cache.iterdir())

  def test_partial_copy_makes_room(
    self, tmp_path, create, contents, monkeypatch
  ):
    _write_zips(tmp_path / "data", contents)
    create()
    (copy,) = (tmp_path / "cache").iterdir()
    copy.rename(sqlite_examples.partial_path(copy))
    usage = shutil.disk_usage(tmp_path)._replace(free=200_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    create()
    assert list((tmp_path / "cache").iterdir()) == [copy]

  def test_cache_must_be_writable(self, tmp_path, create, contents):
    _write_zips(tmp_path / "data", contents)
    (tmp_path / "cache").write_text("not a directory")
    with pytest.raises(ValueError, match="--cache_dir must be writable"):
      create()

  def test_few_images_are_held_at_a_time(
    self, tmp_path, create, contents, monkeypatch
  ):
    _write_zips(tmp_path / "data", contents)
    monkeypatch.setattr(digiface_files, "_CHECKED_AT_ONCE", 4)
    checked = []
    find_unreadable = digiface_files.encoded_images.find_unreadable

    def find(images, image_shape):
      checked.append(len(images))
      return find_unreadable(images, image_shape)

    monkeypatch.setattr(digiface_files.encoded_images, "find_unreadable", find)
    create()
    assert sum(checked) == 8 * _IMAGES
    assert max(checked) <= 2 * _IMAGES


def _error(create, **arguments):
  with pytest.raises(ValueError) as error:
    create(**arguments)
  assert "\n" not in str(error.value)
  return str(error.value)


# Of the training users, and one that is held out.
_DAMAGE = {
  "text": ({"{0}/1.png": b"no image"}, ["{0}/1.png: not an image"]),
  "cut": ({"{0}/1.png": "cut"}, ["{0}/1.png: not an image"]),
  "held_out": ({"{1}/2.png": b""}, ["{1}/2.png: not an image"]),
  "empty": (
    {f"{{0}}/{k}.png": None for k in range(_IMAGES)},
    ["{0}: no image, left out"],
  ),
  "none_readable": (
    {f"{{0}}/{k}.png": b"?" for k in range(_IMAGES)},
    [
      *(f"{{0}}/{k}.png: not an image" for k in range(_IMAGES)),
      "{0}: no image, left out",
    ],
  ),
  "one_readable": (
    {f"{{0}}/{k}.png": b"?" for k in range(1, _IMAGES)},
    [
      "{0}/1.png: not an image",
      "{0}/2.png: not an image",
      "{0}: one image only, left out",
    ],
  ),
}


class TestBadExamples:
  # There are two identities for test, so that neither can be spared.
  trainee, held_out = 0, 2

  def _write(self, layout, data, contents, damage):
    names = (self.trainee, self.held_out)
    changes, lines = _DAMAGE[damage]
    changes = {
      name.format(*names): (
        contents[self.trainee][1][:-3000] if change == "cut" else change
      )
      for name, change in changes.items()
    }
    _LAYOUTS[layout](data, contents, damage=changes)
    return [line.format(*names) for line in lines]

  @pytest.mark.parametrize(
    ("layout", "damage"),
    [
      *(("zips", damage) for damage in sorted(_DAMAGE)),
      ("subjects", "empty"),
      ("subjects", "cut"),
      ("named_folders", "one_readable"),
    ],
  )
  def test_all_are_named_or_left_out(
    self, tmp_path, create, contents, layout, damage
  ):
    lines = self._write(layout, tmp_path / "data", contents, damage)
    source = {
      "zips": f"{_MANY}/",
      "named_folders": _MANY.removesuffix(".zip") + "/",
      "subjects": "",
    }[layout]
    lines = [source + line for line in lines]
    # The copy made with one policy serves the other.
    for _ in range(2):
      text = _error(create)
      assert text.startswith("data must be readable, found ")
      for line in lines:
        if "one image" not in line:
          assert line.removesuffix(", left out") in text
      task = create(on_bad_example="skip")
      assert list(task.bad_examples.lines) == lines
      assert len(task.bad_examples) == len(lines)
    assert len(os.listdir(tmp_path / "cache")) == 1

    kept = {"text": (0, 2), "cut": (0, 2), "held_out": (0, 1, 2)}
    self._check_clients(task, contents, kept.get(damage, ()))
    labels = task.load_images("test").labels
    assert np.sum(labels == self.held_out) == _IMAGES - (damage == "held_out")

  def _check_clients(self, task, contents, kept):
    """Checks all users, of whom the trainee has some images."""
    subjects = [s for s in range(8) if digiface.split_of_subject(s) == "train"]
    assert _user_ids(task) == [str(subject) for subject in subjects]
    assert task.num_train_classes == len(subjects)
    for label, subject in enumerate(subjects):
      rows = kept if subject == self.trainee else range(_IMAGES)
      images, labels = _read_client(task, str(subject))
      assert images == [contents[subject][row] for row in rows]
      assert labels == [label] * len(rows)
    everybody = task.train_users.client_id(range(len(subjects)))
    labels = [0] * len(kept) + [1] * _IMAGES + [2] * _IMAGES + [3] * _IMAGES
    assert _read_client(task, everybody)[1] == labels
    assert task.find_bad_examples(everybody) == []

  @pytest.mark.parametrize("layout", ["zips", "subjects"])
  def test_one_image_is_kept_or_left_out(
    self, tmp_path, create, contents, layout
  ):
    damage = {
      f"{subject}/{k}.png": None
      for subject in (self.trainee, self.held_out)
      for k in range(1, _IMAGES)
    }
    _LAYOUTS[layout](tmp_path / "data", contents, damage=damage)
    prefix = f"{_MANY}/" if layout == "zips" else ""
    held_out = f"1 of the identities held out has one image only: {prefix}2."
    for _ in range(2):
      task = create()
      assert not task.bad_examples.lines
      assert task.warnings[-2:] == (
        f"1 of the identities for training has one image only: {prefix}0.",
        held_out,
      )
      self._check_clients(task, contents, (0,))
      task = create(on_bad_example="skip")
      assert task.bad_examples.lines == (
        f"{prefix}0: one image only, left out",
      )
      assert task.warnings[-1] == held_out
      assert "for training" not in "".join(task.warnings)
      self._check_clients(task, contents, ())
    assert np.sum(task.load_images("test").labels == self.held_out) == 1

  def test_many_with_one_image_are_counted(self, tmp_path, create, contents):
    _write_folders(
      tmp_path / "data", {s: contents[0][:1] for s in range(16)}, range(16)
    )
    subjects = [s for s in range(16) if digiface.split_of_subject(s) == "train"]
    assert len(subjects) > 5
    assert create().warnings[0] == (
      f"{len(subjects)} of the identities for training have one image only:"
      f" {', '.join(map(str, subjects[:5]))}, and {len(subjects) - 5} more."
    )

  @pytest.mark.parametrize(
    "error", [errno.EIO, errno.EACCES], ids=errno.errorcode.get
  )
  @pytest.mark.parametrize("layout", ["zips", "subjects"])
  def test_disk_that_cannot_be_read(
    self, tmp_path, create, contents, layout, error, monkeypatch
  ):
    _LAYOUTS[layout](tmp_path / "data", contents)
    read = zipfile.ZipFile.read, pathlib.Path.read_bytes

    def fail_in_zip(archive, name):
      if name == "3/1.png":
        raise OSError(error, os.strerror(error))
      return read[0](archive, name)

    def fail_in_folder(path):
      if path.parts[-2:] == ("3", "1.png"):
        raise OSError(error, os.strerror(error))
      return read[1](path)

    name = _MANY if layout == "zips" else "3/1.png"
    with monkeypatch.context() as patch:
      patch.setattr(zipfile.ZipFile, "read", fail_in_zip)
      patch.setattr(pathlib.Path, "read_bytes", fail_in_folder)
      for policy in bad_examples.POLICIES:
        assert _error(create, on_bad_example=policy) == (
          f"{tmp_path / 'data' / name} must be a file that can be read,"
          f" found: {os.strerror(error)}."
        )
    assert not os.listdir(tmp_path / "cache")
    assert not create().bad_examples.lines

  def test_damage_to_the_place_of_a_member(
    self, tmp_path, create, contents, monkeypatch
  ):
    _write_zips(tmp_path / "data", contents)
    read = zipfile.ZipFile.read

    def seek_before_the_start(archive, name):
      if name == "0/1.png":
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
      return read(archive, name)

    monkeypatch.setattr(zipfile.ZipFile, "read", seek_before_the_start)
    task = create(on_bad_example="skip")
    (line,) = task.bad_examples.lines
    assert line.startswith(f"{_MANY}/0/1.png: cannot be read: ")

  def test_damage_to_a_member_of_a_zip(self, tmp_path, create, contents):
    data = tmp_path / "data"
    path = _write_zip(data / _MANY, contents, range(8))
    with zipfile.ZipFile(path) as archive:
      info = archive.getinfo(f"{self.trainee}/1.png")
    content = bytearray(path.read_bytes())
    content[info.header_offset + 2_000] ^= 255
    path.write_bytes(content)
    assert f"{_MANY}/{self.trainee}/1.png: cannot be read: Bad CRC-32" in (
      _error(create)
    )
    task = create(on_bad_example="skip")
    kept = contents[self.trainee]
    assert _read_client(task, str(self.trainee))[0] == [kept[0], kept[2]]

  def test_too_few_are_left(self, tmp_path, create, contents):
    # Both identities for test.
    damage = {f"{s}/{k}.png": b"?" for s in (2, 6) for k in range(_IMAGES)}
    _write_zip(tmp_path / "data" / _MANY, contents, range(8), damage=damage)
    assert "data must be readable" in _error(create)
    assert "found 0 for test" in _error(create, on_bad_example="skip")
    assert not os.listdir(tmp_path / "cache")

  def test_more_than_a_line_takes(self, tmp_path, create, contents):
    damage = {f"{s}/0.png": b"?" for s in range(8)}
    _write_zips(tmp_path / "data", contents, damage=damage)
    assert "found 8 bad examples: " in _error(create)
    task = create(on_bad_example="skip")
    assert isinstance(task.bad_examples, bad_examples.BadExamples)
    assert len(task.bad_examples) == 8


class TestMistakes:
  def test_data_dir_must_be_given(self, tmp_path):
    config = task_lib.TaskConfig(None, os.fspath(tmp_path))
    text = _error(lambda: digiface.create_digiface_task(config))
    assert text.startswith("--data_dir must be given for task digiface.")
    assert "github.com/microsoft/DigiFace1M" in text
    assert "non-commercial" in text
    assert "python -m tasks.synthetic --task=digiface" in text

  @pytest.mark.parametrize("is_there", [False, True])
  def test_data_dir_without_images(self, tmp_path, create, is_there):
    if is_there:
      (tmp_path / "data").mkdir()
      (tmp_path / "data" / "images.zip").write_text("another")
    text = _error(create)
    assert text.startswith("--data_dir ")
    assert os.fspath(tmp_path / "data") in text
    assert "github.com/microsoft/DigiFace1M" in text

  def test_variant_must_be_known_and_there(self, tmp_path, create, contents):
    _write_zip(tmp_path / "data" / _MANY, contents, range(8))
    assert _error(create, variant="99_images").startswith(
      "task_variant must be one of 72_images, 5_images, all"
    )
    text = _error(create, variant="5_images")
    assert "identities of task_variant=5_images, found only 72_images" in text

  @pytest.mark.parametrize("damage", ["cut", "text", "empty"])
  def test_damaged_zip_is_named(self, tmp_path, create, contents, damage):
    path = _write_zip(tmp_path / "data" / _MANY, contents, range(8))
    content = path.read_bytes()
    path.write_bytes(
      {
        "cut": content[: len(content) // 2],
        "text": b"no archive",
        "empty": b"",
      }[damage]
    )
    for policy in bad_examples.POLICIES:
      assert _error(create, on_bad_example=policy).startswith(
        f"{path} must be a whole zip archive, found: "
      )

  @pytest.mark.parametrize("kind", ["zip", "folder"])
  def test_source_without_identities(self, tmp_path, create, kind):
    path = tmp_path / "data" / _MANY.removesuffix(".zip")
    path.mkdir(parents=True)
    (path / "readme.txt").write_text("none")
    if kind == "zip":
      shutil.rmtree(path)
      path = path.with_name(_MANY)
      with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "none")
    assert _error(create).startswith(f"{path} must hold <subject id>/<k>.png")

  @pytest.mark.parametrize("write", [_write_zip, _write_folders])
  def test_subjects_must_be_those_of_the_name(
    self, tmp_path, create, contents, write
  ):
    name = "subjects_0-5_3_imgs" + ".zip" * (write is _write_zip)
    write(tmp_path / "data" / name, contents, range(8))
    text = _error(create)
    assert "must hold subjects 0 to 5, as its name says, found 6" in text

  def test_sources_must_not_overlap(self, tmp_path, create, contents):
    data = tmp_path / "data"
    path = _write_zip(data / _MANY, contents, range(8))
    folder = _write_folders(
      data / _MANY.removesuffix(".zip"), contents, range(8)
    )
    text = _error(create)
    assert f"{path} must hold other subjects than {folder}, found 0" in text
    shutil.rmtree(folder)
    _write_folders(data, contents, [5])
    assert "found 5 in both" in _error(create)

  def test_too_few_identities(self, tmp_path, create, contents):
    _write_folders(tmp_path / "data", contents, [0, 1, 2])
    text = _error(create)
    assert text.startswith("--data_dir must hold at least 2 identities for")
    assert not pathlib.Path(tmp_path / "cache").exists()


@pytest.mark.parametrize("write", [_write_zip, _write_folders])
def test_what_is_missing_by_the_name_is_told(tmp_path, create, contents, write):
  name = "subjects_0-9_3_imgs" + ".zip" * (write is _write_zip)
  write(tmp_path / "data" / name, contents, range(8), damage={"0/1.png": None})
  for _ in range(2):
    assert create().warnings == (
      f"{name} holds 8 of 10 identities.",
      f"{name} has fewer than 3 images of 1 of 8 identities.",
    )


def test_zip_with_a_folder_around_its_subjects(tmp_path, create, contents):
  path = tmp_path / "data" / _MANY
  path.parent.mkdir()
  with zipfile.ZipFile(path, "w") as archive:
    archive.writestr("__MACOSX/0/._0.png", b"no image")
    for subject in range(8):
      for number, content in enumerate(contents[subject]):
        archive.writestr(f"{path.stem}/{subject}/{number}.png", content)
  with pytest.raises(ValueError, match="found 0 in both"):
    create()
