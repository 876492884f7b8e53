"""Lists photos in folders, `<user>/<class>/<image>` or `<person>/<image>`.

In the second layout, common for faces, a person is both user and class. All
folders must have the same layout.
"""

from collections.abc import Iterable, Iterator
import dataclasses
import functools
import os
import pathlib
import unicodedata

import pandas as pd

from tff_fedemb import errors
from tff_fedemb import progress as progress_lib
from tff_fedemb.data import bad_examples
from tff_fedemb.data import image_folder
from tff_fedemb.data import photo_index

# Reason of a warning that names names.
TAKEN_FOR_ONE = "{number} names in other Unicode characters are taken for one"


@dataclasses.dataclass
class Findings:
  """Findings about the photos, made while they are listed.

  Attributes:
    sources: Paths, sizes in bytes and times in nanoseconds of folders, tables
      and converted copies.
    bad: Places other than photos that cannot be used, and the reasons.
    warnings: Sentences about what looks wrong.
  """

  sources: list[tuple[bytes, int, int]] = dataclasses.field(
    default_factory=list
  )
  bad: list[tuple[str, str]] = dataclasses.field(default_factory=list)
  warnings: list[str] = dataclasses.field(default_factory=list)

  def add_source(self, path: bytes | str | os.PathLike[str]) -> None:
    """Records the size and time of a file, or the time of a folder.

    Args:
      path: A path; when it changes, the index is made again. A path that is
        gone is recorded as such.
    """
    encoded = os.fsencode(path)
    size, mtime_ns, _ = photo_index.look_at(encoded)
    self.sources.append((encoded, size, mtime_ns))

  def warn(self, text: str, names: Iterable[str], total: int = 0) -> None:
    """Warns of names with one kind of fault, if there are any.

    Args:
      text: The reason, with {number} and maybe {total} in it.
      names: The names with the fault; the first five are told.
      total: Number of all names, for {total}.
    """
    named = list(names)
    numbers = {"number": f"{len(named):,}", "total": f"{total:,}"}
    self.warnings += bad_examples.warn_of(text.format(**numbers), named)


@functools.lru_cache(100_000)
def show_name(name: str) -> str:
  r"""Returns a name as text.

  Args:
    name: Name of a file, in which surrogates stand for bytes that are not text.

  Returns:
    The name in Unicode's form NFC, with such bytes written as `\xff`.
  """
  encoded = name.encode("utf-8", "surrogateescape")
  shown = encoded.decode("utf-8", "backslashreplace")
  return unicodedata.normalize("NFC", shown)


def _scan(path: str, shown: str, findings: Findings) -> list[os.DirEntry[str]]:
  """Lists the visible entries of a folder by name, links last.

  A folder that cannot be read is noted in `findings` as `shown`, and is empty.
  What leads to nothing, and may have been a folder, is noted and left out.
  """
  findings.add_source(path)
  try:
    with os.scandir(path) as found:
      entries = [
        entry for entry in found if not image_folder.is_litter(entry.name)
      ]
  except OSError as error:
    what = f"folder that cannot be read: {error.strerror}"
    findings.bad.append((shown or path, what))
    # It may become readable without a change that a later start would notice.
    findings.sources.append((os.fsencode(path), -2, -2))
    return []
  there = []
  for entry in entries:
    if _is_image(entry.name) or os.path.exists(entry.path):
      there.append(entry)
    else:
      findings.add_source(entry.path)
      name = os.path.join(shown, show_name(entry.name))
      what = "leads to nothing, or to what cannot be examined"
      findings.bad.append((name, what))
  return sorted(there, key=lambda entry: (entry.is_symlink(), entry.name))


def _is_image(name: str) -> bool:
  """Whether the name of a file is that of an image."""
  suffix = os.path.splitext(name)[1].lower()
  return suffix in image_folder.READABLE_SUFFIXES


def _walk(root: str, findings: Findings) -> Iterator[tuple[str, int, bool]]:
  """Yields paths, their depth of 1 to 3, and whether each is a folder.

  Paths are relative to the root and come level by level. A folder that links
  reach twice is listed once.
  """
  folders = [""]
  links = []
  visited: set[tuple[int, int]] = set()
  for depth in (1, 2, 3):
    deeper = []
    bar = progress_lib.create_bar(
      "Listing photos", unit="folders", items=folders
    )
    for below in bar:
      path = os.path.join(root, below)
      for entry in _scan(path, show_name(below), findings):
        path = os.path.join(below, entry.name)
        is_folder = os.path.isdir(entry.path)
        if is_folder and depth < 3:
          facts = os.stat(entry.path)
          identity = (facts.st_dev, facts.st_ino)
          if identity in visited:
            links.append(show_name(path))
            continue
          visited.add(identity)
          deeper.append(path)
        yield path, depth, is_folder
    folders = deeper
  findings.warn("{number} links lead to folders that are listed already", links)


def _is_of_people(entries: pd.DataFrame) -> bool:
  """Whether the folders of users hold images, rather than classes.

  Raises:
    FieldError: If some hold only images and others only folders.
  """
  inside = entries[entries["depth"] == 2]
  images = set(inside["folder"][inside["is_image"]].map(show_name))
  folders = set(inside["folder"][inside["is_folder"]].map(show_name))
  # A folder with both does not decide; the others do.
  with_images = sorted(images - folders)
  with_classes = sorted(folders - images)
  if with_images and with_classes:
    people = bad_examples.name_first(with_images)
    users = bad_examples.name_first(with_classes)
    raise errors.FieldError(
      "data_dir",
      "hold <user>/<class>/<image> for all users, or <person>/<image>",
      f"{len(with_images):,} with images in their own folder ({people}) and"
      f" {len(with_classes):,} with folders in it ({users})",
    )
  return bool(with_images)


def _note_odd(
  entries: pd.DataFrame,
  is_photo: pd.Series,
  layout: str,
  findings: Findings,
) -> None:
  """Warns of files that are not photos, and of folders without any.

  `is_photo` is a mask of `entries`, and `layout` is told to the user.
  """
  paths = entries["path"]
  is_folder = entries["is_folder"]
  is_image = entries["is_image"]
  is_deeper = is_folder & (entries["depth"] == entries["depth"].max())
  folders = entries[is_folder & ~is_deeper]
  holders = pd.concat([entries["folder"][is_photo], folders["folder"]])
  findings.warn(
    f"{{number}} folders lie deeper than {layout} and are not looked into; move"
    " their images up, or list them in a table",
    paths[is_deeper].map(show_name),
  )
  findings.warn(
    "{number} images lie beside folders; move them into those of their class",
    paths[is_image & ~is_photo].map(show_name),
  )
  findings.warn(
    "{number} files are no images by their names; save images as JPEG or PNG",
    paths[~is_folder & ~is_image].map(show_name),
  )
  findings.warn(
    "{number} folders hold no image",
    folders["path"][~folders["path"].isin(holders)].map(show_name),
  )
  names = folders[["depth", "name"]].drop_duplicates()
  shown = names.assign(name=names["name"].map(show_name))
  findings.warn(TAKEN_FOR_ONE, shown["name"][shown.duplicated()])


# Names that are not UTF-8 have surrogates, which pandas' string type refuses.
@pd.option_context("future.infer_string", False)
def list_folder(
  root: pathlib.Path,
  findings: Findings,
) -> tuple[pd.DataFrame, bool]:
  """Lists the photos of a folder; notes what is odd or cannot be used.

  No photo is opened. Files of TIFF, BMP and others are listed too.

  Args:
    root: The folder.
    findings: Receives the notes.

  Returns:
    A row for each photo: its `user`, its class `label`, its `path` below the
    root as the disk has it, in bytes, and what `photo_index.look_at` finds,
    `size`, `mtime_ns` and `fault`. And whether images lie in folders of users
    themselves, who are their own classes.

  Raises:
    FieldError: If some users have folders of classes and others have none.
  """
  entries = pd.DataFrame(
    _walk(os.fspath(root), findings), columns=["path", "depth", "is_folder"]
  )
  entries["folder"] = entries["path"].map(os.path.dirname)
  entries["name"] = entries["path"].map(os.path.basename)
  has_suffix = entries["name"].map(_is_image).astype(bool)
  entries["is_image"] = has_suffix & ~entries["is_folder"]
  of_people = _is_of_people(entries)
  depth = 2 if of_people else 3
  entries = entries[entries["depth"] <= depth]
  is_photo = entries["is_image"] & (entries["depth"] == depth)
  layout = "<person>" if of_people else "<user>/<class>"
  _note_odd(entries, is_photo, layout, findings)
  paths = entries["path"][is_photo].reset_index(drop=True)
  parts = [path.split(os.sep) for path in paths]
  bar = progress_lib.create_bar("Looking at photos", unit="photos", items=paths)
  found = [photo_index.look_at(os.path.join(root, path)) for path in bar]
  photos = pd.DataFrame(found, columns=["size", "mtime_ns", "fault"])
  photos = photos.assign(
    user=[show_name(names[0]) for names in parts],
    label=[show_name(names[-2]) for names in parts],
    path=paths.map(os.fsencode),
  )
  return photos, of_people
