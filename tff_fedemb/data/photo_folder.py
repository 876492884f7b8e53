"""Lists photos that lie in folders, `<user>/<class>/<image>`.

Or `<person>/<image>`, as faces do: a person is a user and a class then. One
layout holds for all folders.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import functools
import os
import pathlib
from typing import NamedTuple
import unicodedata

from tff_fedemb import errors
from tff_fedemb import progress as progress_lib
from tff_fedemb.data import bad_examples
from tff_fedemb.data import image_folder
from tff_fedemb.data import photo_index
from tff_fedemb.data import reading

# Files and folders that other programs leave.
_LITTER = frozenset(("thumbs.db", "desktop.ini", "__macosx", "@eadir"))
_NO_IMAGES = (
  "{number} files are no images by their names; save images as JPEG or PNG"
)
_MISPLACED = (
  "{number} images lie beside folders; move them into those of their class"
)


class Photo(NamedTuple):
  """A photo as it is listed.

  Attributes:
    user: Its owner.
    label: Its class.
    path: Below the root, as the disk has it.
    size, mtime_ns, fault: The result of `photo_index.look_at`.
    split: Index into `photo_index.SPLITS`, or -1 if the list does not say it.
  """

  user: str
  label: str
  path: bytes
  size: int
  mtime_ns: int
  fault: str | None = None
  split: int = -1


@dataclasses.dataclass
class Findings:
  """Findings about the photos, made while they are listed.

  Attributes:
    sources: Paths, sizes and times of folders and tables that were read.
    bad: Places other than photos that cannot be used, and the reasons.
    odd: Names by a sentence, with {number} in it, that says why they are odd.
    remarks: Further findings, as sentences.
  """

  sources: list[tuple[bytes, int, int]] = dataclasses.field(
    default_factory=list
  )
  bad: list[tuple[str, str]] = dataclasses.field(default_factory=list)
  odd: dict[str, list[str]] = dataclasses.field(default_factory=dict)
  remarks: list[str] = dataclasses.field(default_factory=list)

  def add_source(self, path: str | os.PathLike[str]) -> None:
    """Takes down size and time of a file, or the time of a folder."""
    encoded = os.fsencode(path)
    size, mtime_ns, _ = photo_index.look_at(encoded)
    self.sources.append((encoded, size, mtime_ns))

  def describe(self) -> list[str]:
    """A line for each that is odd."""
    lines = list(self.remarks)
    for text, names in self.odd.items():
      lines += bad_examples.warn_of(
        text.format(number=f"{len(names):,}"), names
      )
    return lines

  def add_odd(self, what: str, name: str) -> None:
    """Takes down something odd."""
    self.odd.setdefault(what, []).append(name)


@functools.lru_cache(100_000)
def show_name(name: str) -> str:
  """A name as text: one form of each letter, no bytes that are no text."""
  shown = name.encode("utf-8", "surrogateescape").decode(
    "utf-8", "backslashreplace"
  )
  return unicodedata.normalize("NFC", shown)


def _is_visible(name: str) -> bool:
  return not name.startswith(".") and name.lower() not in _LITTER


def _is_image(name: str) -> bool:
  suffix = os.path.splitext(name)[1].lower()
  return suffix in image_folder.READABLE_SUFFIXES


class FolderListing:
  """Photos below a folder.

  Attributes:
    field: The option that names it.
    root: The folder that paths are relative to.
    place: The folder.
    findings: Findings about the folders, known once the photos are listed.
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
      users = self._list_folders("")
      self.of_people = self._find_people(users)
      for user in users:
        for folder in [""] if self.of_people else self._list_folders(user):
          for photo in self._list_images(user, folder):
            yield photo
            progress.update()

  def _find_people(self, users: list[str]) -> bool:
    """Whether the folders of users hold images, rather than classes."""
    names: dict[bool, list[str]] = {True: [], False: []}
    for user in users:
      kinds = set()
      # Folders that cannot be read are noted when they are listed.
      with contextlib.suppress(OSError), os.scandir(self.root / user) as found:
        for entry in found:
          if _is_visible(entry.name):
            if entry.is_dir():
              kinds.add("folder")
            elif _is_image(entry.name):
              kinds.add("image")
      # Where one has both, the others decide.
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

  def _scan(self, below: str) -> Iterator[tuple[os.DirEntry[str], str, bool]]:
    """Yields entries that are not hidden, folders that are no links first.

    Each comes with its path below the root and whether it is a folder.
    """
    path = self.root / below
    self.findings.add_source(path)
    try:
      with os.scandir(path) as found:
        entries = [entry for entry in found if _is_visible(entry.name)]
    except OSError as error:
      self.findings.bad.append(
        (
          show_name(below) or str(path),
          f"folder that cannot be read: {error.strerror}",
        )
      )
      # It may be readable the next time, although it looks the same.
      self.findings.sources.append((os.fsencode(path), -2, -2))
      return
    entries.sort(key=lambda entry: (entry.is_symlink(), entry.name))
    for entry in entries:
      yield entry, os.path.join(below, entry.name), os.path.isdir(entry.path)

  def _list_folders(self, below: str) -> list[str]:
    """Names of the folders in a folder; what else lies there is odd."""
    folders = []
    for entry, path, is_folder in self._scan(below):
      shown = show_name(path)
      if not is_folder:
        what = _MISPLACED if _is_image(entry.name) else _NO_IMAGES
        self.findings.add_odd(what, shown)
        continue
      facts = os.stat(entry.path)
      if (facts.st_dev, facts.st_ino) in self._visited:
        self.findings.add_odd(
          "{number} links lead to folders that are listed already", shown
        )
        continue
      self._visited.add((facts.st_dev, facts.st_ino))
      names = self._names["classes" if below else "users"]
      if names.setdefault(show_name(entry.name), entry.name) != entry.name:
        what = "{number} names in other Unicode characters are taken for one"
        self.findings.add_odd(what, shown)
      folders.append(entry.name)
    if not folders and below:
      self.findings.add_odd("{number} folders of users are empty", below)
    return folders

  def _list_images(self, user: str, folder: str) -> Iterator[Photo]:
    """Images of a class of a user, or of a user who has no folders of them."""
    below = os.path.join(user, folder) if folder else user
    owner, label = show_name(user), show_name(folder or user)
    is_empty = True
    for entry, path, is_folder in self._scan(below):
      if is_folder:
        self.findings.add_source(entry.path)
        depth = "<person>" if self.of_people else "<user>/<class>"
        self.findings.add_odd(
          f"{{number}} folders lie deeper than {depth} and are not looked into;"
          " move their images up, or list them in a table",
          show_name(path),
        )
      elif not _is_image(entry.name):
        self.findings.add_odd(_NO_IMAGES, show_name(path))
      else:
        is_empty = False
        size, mtime_ns, fault = photo_index.look_at(entry.path)
        if fault == reading.MISSING:
          fault = "a link that leads nowhere"
        yield Photo(owner, label, os.fsencode(path), size, mtime_ns, fault)
    if is_empty:
      kind = "users" if self.of_people else "classes"
      self.findings.add_odd(
        f"{{number}} folders of {kind} hold no image", show_name(below)
      )
