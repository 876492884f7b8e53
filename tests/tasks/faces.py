"""DigiFace's files in every layout that they may come in."""

import zipfile

from tests.data import photo_files

IMAGES = 3
MANY = "subjects_0-7_3_imgs.zip"
FEW = "subjects_100000-100007_3_imgs.zip"
# With eight identities from either start there are two for each split at least.
SUBJECTS = {"72_images": range(8), "5_images": range(100_000, 100_008)}


def create_png(seed):
  return photo_files.encode(seed, "PNG", size=(112, 112))


def create_contents():
  """Contents of the images by subject, of both parts."""
  return {
    subject: [create_png(10 * subject + k) for k in range(IMAGES)]
    for subjects in SUBJECTS.values()
    for subject in subjects
  }


def _damage(contents, subject, damage):
  """Names and contents of a subject; damage changes or removes them by name."""
  for number, content in enumerate(contents[subject]):
    name = f"{subject}/{number}.png"
    content = (damage or {}).get(name, content)
    if content is not None:
      yield name, content


def write_zip(path, contents, subjects, *, damage=None):
  """Writes subjects; `damage` changes the contents by name, or removes them."""
  path.parent.mkdir(parents=True, exist_ok=True)
  with zipfile.ZipFile(path, "w") as archive:
    for subject in subjects:
      archive.writestr(f"{subject}/", b"")
      for name, content in _damage(contents, subject, damage):
        archive.writestr(name, content)
  return path


def write_zips(folder, contents, **options):
  """Writes a zip of each part."""
  for name, subjects in zip((MANY, FEW), SUBJECTS.values(), strict=True):
    write_zip(folder / name, contents, subjects, **options)


def write_folders(path, contents, subjects, *, damage=None):
  """As `write_zip`, into the subjects' folders."""
  for subject in subjects:
    (path / str(subject)).mkdir(parents=True)
    for name, content in _damage(contents, subject, damage):
      (path / name).write_bytes(content)
  return path


def write_subjects(folder, contents):
  """Writes all subjects into their own folders, beside others."""
  write_folders(folder, contents, contents)
  (folder / "readme").mkdir()
  (folder / "notes.txt").write_text("not a face")
  (folder / "3" / "notes.txt").write_text("not a face")


def write_mixture(folder, contents):
  """Writes all subjects, some to each kind of source."""
  write_zip(folder / "subjects_6-7_3_imgs.zip", contents, (6, 7))
  write_folders(folder / "subjects_0-2_3_imgs", contents, range(3))
  write_folders(folder, contents, [3, 4, 5, *range(100_003, 100_008)])
  few = range(100_000, 100_003)
  write_zip(folder / "subjects_100000-100002_3_imgs.zip", contents, few)
