"""Lists photos that lie in folders, `<user>/<class>/<image>`.

Or `<person>/<image>`, as faces do: a person is a user and a class then. Which
of the two it is holds for all folders alike.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import functools
import os
import pathlib
import stat
from typing import NamedTuple
import unicodedata

from tff_fedemb import errors
from tff_fedemb import progress as progress_lib
from tff_fedemb.data import bad_examples
from tff_fedemb.data import image_folder
from tff_fedemb.data import photo_index

# What other programs leave in folders.
_LITTER = frozenset(("thumbs.db", "desktop.ini", "__macosx", "@eadir"))


class Photo(NamedTuple):
  """A photo as it is listed.

  Attributes:
    user: Whose it is.
    label: What it shows.
    path: Below the root, as the disk has it.
    size: Bytes, or -1 if there is no file.
    mtime_ns: When it was changed last, or -1.
    split: Index into `photo_index.SPLITS`, or -1 if the list does not say it.
    fault: What is wrong with it, if anything.
  """

  user: str
  label: str
  path: bytes
  size: int
  mtime_ns: int
  split: int = -1
  fault: str | None = None


@dataclasses.dataclass
class Findings:
  """What is noticed while photos are listed.

  Attributes:
    sources: Paths, sizes and times of what was looked at.
    bad: What cannot be used and where, other than photos.
    odd: Names by what is odd about them; a sentence with {number} in it.
    remarks: Whole sentences.
  """

  sources: list[tuple[bytes, int, int]] = dataclasses.field(
    default_factory=list
  )
  bad: list[tuple[str, str]] = dataclasses.field(default_factory=list)
  odd: dict[str, list[str]] = dataclasses.field(default_factory=dict)
  remarks: list[str] = dataclasses.field(default_factory=list)

  def add_source(self, path: bytes | str | os.PathLike[str]) -> None:
    """Takes down size and time of a file, or the time of a folder."""
    self.sources.append(
      (os.fsencode(path), *photo_index.find_facts(os.fsencode(path)))
    )

  def describe(self) -> list[str]:
    """A line for each that is odd."""
    return [
      *self.remarks,
      *(
        line
        for text, names in self.odd.items()
        for line in bad_examples.warn_of(
          text.format(number=f"{len(names):,}"), names
        )
      ),
    ]

  def add_odd(self, what: str, name: str) -> None:
    """Takes down something odd."""
    self.odd.setdefault(what, []).append(name)


def is_file(facts: os.stat_result) -> bool:
  """Whether it is an ordinary file, and no folder or device."""
  return stat.S_ISREG(facts.st_mode)


@functools.lru_cache(100_000)
def show_name(name: str) -> str:
  """A name as text: one form of each letter, no bytes that are no text."""
  shown = name.encode("utf-8", "surrogateescape").decode(
    "utf-8", "backslashreplace"
  )
  return unicodedata.normalize("NFC", shown)


def _is_visible(entry: os.DirEntry[str]) -> bool:
  return not entry.name.startswith(".") and entry.name.lower() not in _LITTER


def _is_image(entry: os.DirEntry[str]) -> bool:
  return (
    os.path.splitext(entry.name)[1].lower() in image_folder.READABLE_SUFFIXES
  )


class FolderListing:
  """Photos below a folder.

  Attributes:
    field: What the user gives it by.
    root: What paths begin at.
    place: The folder.
    findings: What is odd or bad; known once the photos are listed.
    of_people: Whether images lie in folders of users themselves, who are their
      own classes; known once the photos are listed.
  """

  field = "data_dir"

  def __init__(self, root: pathlib.Path):
    self.root = self.place = root.absolute()
    self.findings = Findings()
    self.of_people = False
    # Device and number of folders that were listed: one that a link leads to
    # again is not.
    self._visited: set[tuple[int, int]] = set()
    self._names: dict[str, dict[str, str]] = {"users": {}, "classes": {}}

  def list_photos(self) -> Iterator[Photo]:
    """Yields photos; notes what is odd or bad.

    Raises:
      FieldError: If some users have folders of classes and others have none.
    """
    with progress_lib.create_bar("Listing photos", unit="photos") as progress:
      users = self._list_folders(self.root, "")
      self.of_people = self._find_people(users)
      for user in users:
        folders = (
          [""] if self.of_people else self._list_folders(self.root / user, user)
        )
        for folder in folders:
          for photo in self._list_images(user, folder):
            yield photo
            progress.update()

  def _find_people(self, users: list[str]) -> bool:
    """Whether the folders of users hold images, rather than classes."""
    names: dict[bool, list[str]] = {True: [], False: []}
    for user in users:
      kinds = set()
      # What cannot be read is noted when it is listed.
      with contextlib.suppress(OSError), os.scandir(self.root / user) as found:
        for entry in filter(_is_visible, found):
          if entry.is_dir():
            kinds.add("folder")
          elif _is_image(entry):
            kinds.add("image")
      # Of one with both, the others say what it is.
      if len(kinds) == 1:
        names["image" in kinds].append(show_name(user))
    with_images, with_classes = names[True], names[False]
    if with_images and with_classes:
      raise errors.FieldError(
        self.field,
        "hold <user>/<class>/<image> for all users, or <person>/<image>",
        f"{len(with_images):,} with images in their own folder"
        f" ({bad_examples.name_first(with_images)}) and {len(with_classes):,}"
        f" with folders in it ({bad_examples.name_first(with_classes)})",
      )
    return bool(with_images)

  def _scan(self, path: pathlib.Path, name: str) -> list[os.DirEntry[str]]:
    """Entries that are not hidden, folders that are no links first."""
    self.findings.add_source(path)
    try:
      with os.scandir(path) as entries:
        visible = list(filter(_is_visible, entries))
    except OSError as error:
      self.findings.bad.append(
        (name or str(path), f"folder that cannot be read: {error.strerror}")
      )
      # It may be readable the next time, although it looks the same.
      self.findings.sources.append((os.fsencode(path), -2, -2))
      return []
    return sorted(visible, key=lambda entry: (entry.is_symlink(), entry.name))

  def _list_folders(self, path: pathlib.Path, name: str) -> list[str]:
    """Names of the folders in a folder; what else lies there is odd."""
    folders = []
    for entry in self._scan(path, name):
      shown = os.path.join(show_name(name), show_name(entry.name))
      try:
        is_folder = entry.is_dir()
        facts = entry.stat() if is_folder else None
      except OSError as error:
        self.findings.bad.append((shown, f"cannot be read: {error.strerror}"))
        continue
      if facts is None:
        self._note_file(entry, shown)
        continue
      place = facts.st_dev, facts.st_ino
      if place in self._visited:
        self.findings.add_odd(
          "{number} links lead to folders that are listed already and are not"
          " followed again",
          shown,
        )
        continue
      self._visited.add(place)
      self._check_twin("classes" if name else "users", entry.name, shown)
      folders.append(entry.name)
    if not folders and name:
      self.findings.add_odd("{number} folders of users are empty", name)
    return folders

  def _note_file(self, entry: os.DirEntry[str], shown: str) -> None:
    if _is_image(entry):
      self.findings.add_odd(
        "{number} images lie beside folders and are not used; move them into"
        " the folder of their class",
        shown,
      )
    else:
      self._note_other(shown)

  def _note_other(self, shown: str) -> None:
    self.findings.add_odd(
      "{number} files are no images by their names and are not used; save"
      " those that are images as JPEG or PNG",
      shown,
    )

  def _check_twin(self, kind: str, name: str, shown: str) -> None:
    first = self._names[kind].setdefault(show_name(name), name)
    if first != name:
      self.findings.add_odd(
        "{number} names are written with other Unicode characters than the"
        " same names elsewhere; they are taken for one",
        shown,
      )

  def _list_images(self, user: str, folder: str) -> Iterator[Photo]:
    """Images of a class of a user, or of a user who has no folders of them."""
    below = os.path.join(user, folder) if folder else user
    owner, label = show_name(user), show_name(folder or user)
    depth = "<person>" if self.of_people else "<user>/<class>"
    is_empty = True
    for entry in self._scan(self.root / below, show_name(below)):
      path = os.path.join(below, entry.name)
      fault, size, mtime_ns = None, -1, -1
      try:
        if entry.is_dir():
          self.findings.add_source(entry.path)
          self.findings.add_odd(
            f"{{number}} folders lie deeper than {depth} and are not"
            " looked into; move their images up, or list them in a table",
            show_name(path),
          )
          continue
        if not _is_image(entry):
          self._note_other(show_name(path))
          continue
        facts = entry.stat()
        size, mtime_ns = facts.st_size, facts.st_mtime_ns
        if not is_file(facts):
          fault = "no file"
        elif not size:
          fault = "empty"
      except OSError as error:
        fault = (
          "a link that leads nowhere"
          if isinstance(error, FileNotFoundError)
          else f"cannot be read: {error.strerror}"
        )
      is_empty = False
      yield Photo(owner, label, os.fsencode(path), size, mtime_ns, fault=fault)
    if is_empty:
      self.findings.add_odd(
        "{number} folders of users hold no image"
        if self.of_people
        else "{number} folders of classes hold no image",
        show_name(below),
      )
