"""DigiFace-1M as its publishers offer it: zips that the task reads as they are.

Bae et al., "DigiFace-1M: 1 Million Digital Face Images for Face Recognition",
WACV 2023. Nothing is converted here. The zips are verified, image by image,
with the CRCs inside (there are no published checksums), and counted.
"""

from collections.abc import Iterator
import dataclasses
import json
import os
import pathlib
import re
import zipfile
import zlib

import tqdm

from binaries.preparation import downloads
from tff_fedemb.data import bad_examples
from tff_fedemb.data import sqlite_examples

# The published zips: first and last subject, images of each.
PUBLISHED = (
    *((first, first + 1999, 72) for first in range(0, 10_000, 2_000)),
    (100_000, 133_332, 5),
    (133_333, 166_665, 5),
    (166_666, 199_998, 5),
)
REPORT_FILE = "preparation.json"

_ZIP_NAME = re.compile(r"subjects_(\d+)-(\d+)_(\d+)_imgs\.zip")
_IMAGE_NAME = re.compile(r"(?:[^/]+/)?(\d+)/[^/.][^/]*\.png")
# RuntimeError: encrypted, or (NotImplementedError) packed in an unknown way.
_ZIP_ERRORS = (EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
# What a database of the images takes beside them, as it fills whole pages.
_OVERHEAD = 4_500


@dataclasses.dataclass(frozen=True)
class ZipSummary:
  """What a zip holds by its directory.

  Attributes:
    path: The zip.
    num_subjects: Number of subjects.
    num_images: Number of images.
    num_bytes: Bytes of all images.
  """

  path: pathlib.Path
  num_subjects: int
  num_images: int
  num_bytes: int


def _open_zip(path: pathlib.Path) -> zipfile.ZipFile:
  try:
    return zipfile.ZipFile(path)
  except _ZIP_ERRORS as error:
    raise sqlite_examples.DataError(
        f"{path} must be a whole zip archive, found: {error}. Fetch it again."
    ) from error


def _images_of(
    archive: zipfile.ZipFile,
) -> Iterator[tuple[str, zipfile.ZipInfo]]:
  """Yields subjects and images."""
  for info in archive.infolist():
    if match := _IMAGE_NAME.fullmatch(info.filename):
      yield match[1], info


def summarize(path: pathlib.Path) -> ZipSummary:
  """Counts what is in a zip, by its directory alone.

  Args:
    path: The zip.

  Returns:
    The counts.

  Raises:
    DataError: If it is no zip, was cut off, or has no images.
  """
  with _open_zip(path) as archive:
    images = list(_images_of(archive))
  if not images:
    raise sqlite_examples.DataError(
        f"{path} must hold <subject id>/<k>.png, found no such file."
    )
  return ZipSummary(
      path,
      len({subject for subject, _ in images}),
      len(images),
      sum(info.file_size for _, info in images),
  )


def find_damaged(path: pathlib.Path, bar: tqdm.tqdm) -> list[str]:
  """Reads every image of a zip, which compares its CRC.

  Args:
    path: The zip.
    bar: Is moved on by the bytes of the images.

  Returns:
    A line for each image that is damaged.
  """
  damaged = []
  with _open_zip(path) as archive:
    for _, info in _images_of(archive):
      try:
        archive.read(info)
      except _ZIP_ERRORS as error:
        damaged.append(f"{path.name}/{info.filename}: {error}")
      bar.update(info.file_size)
  return damaged


def _find_zips(source_dir: pathlib.Path) -> list[pathlib.Path]:
  """The zips by number; says which are there and which are not."""
  matches = {
      path: match
      for path in source_dir.iterdir()
      if (match := _ZIP_NAME.fullmatch(path.name)) and path.is_file()
  }
  paths = sorted(matches, key=lambda path: int(matches[path][1]))
  names = [f"subjects_{a}-{b}_{n}_imgs.zip" for a, b, n in PUBLISHED]
  if not paths:
    raise sqlite_examples.DataError(
        f"--source_dir={source_dir} must hold some of"
        f" {', '.join(names)} (links: github.com/microsoft/DigiFace1M), found"
        " none."
    )
  present = {path.name for path in paths}
  absent = [name for name in names if name not in present]
  print(
      f"Zips: {len(present)} found"
      + (f", missing {', '.join(absent)}." if absent else ", all there are.")
  )
  return paths


def _tell(summaries: list[ZipSummary]) -> None:
  for summary in summaries:
    print(
        f"{summary.path.name}: {summary.num_subjects} subjects,"
        f" {summary.num_images} images,"
        f" {downloads.format_bytes(summary.num_bytes)}."
    )
  copy = sum(s.num_bytes + s.num_images * _OVERHEAD for s in summaries)
  print(
      "Nothing needs converting: --task=digiface --data_dir="
      f"{summaries[0].path.parent} reads the zips. When it first does, it makes"
      f" a copy of at most about {downloads.format_bytes(copy)} in its"
      " --cache_dir (for all zips; less for a part of them)."
  )


def _fact(path: pathlib.Path) -> list[int]:
  facts = path.stat()
  return [facts.st_size, facts.st_mtime_ns]


def _read_report(path: pathlib.Path) -> dict[str, dict[str, object]]:
  """Zips that were verified, by name."""
  if not path.exists():
    return {}
  try:
    report = json.loads(path.read_text())
    if report["task"] == "digiface":
      return report["zips"]
  except (ValueError, KeyError, TypeError):
    pass
  raise sqlite_examples.DataError(
      f"{path} must be of task digiface, found something else. Choose another"
      " --output_dir."
  )


def _write_report(path: pathlib.Path, zips: dict[str, object]) -> None:
  partial = path.with_name(path.name + ".partial")
  partial.write_text(
      json.dumps({"task": "digiface", "zips": zips}, indent=2, sort_keys=True)
      + "\n"
  )
  os.replace(partial, path)


def verify(
    source_dir: pathlib.Path,
    output_dir: pathlib.Path | None = None,
    *,
    on_bad_example: str = "fail",
    dry_run: bool = False,
) -> int:
  """Verifies the zips, and tells what is in them.

  Args:
    source_dir: Folder of the zips.
    output_dir: Gets `preparation.json`, which lists the zips that were
      verified, so that they need not be again; None: no such file.
    on_bad_example: "fail": damaged images end the program, named in one
      message; "skip": they are listed.
    dry_run: Whether to stop after telling what is there.

  Returns:
    The number of zips that were read.

  Raises:
    DataError: If there are no zips, or some are damaged.
  """
  paths = _find_zips(source_dir)
  summaries = [summarize(path) for path in paths]
  _tell(summaries)
  report_path = output_dir and output_dir / REPORT_FILE
  zips = _read_report(report_path) if report_path else {}
  to_do = [
      summary
      for summary in summaries
      if zips.get(summary.path.name, {}).get("file") != _fact(summary.path)
  ]
  if dry_run:
    return 0
  if report_path:
    output_dir.mkdir(parents=True, exist_ok=True)
  with tqdm.tqdm(
      total=sum(summary.num_bytes for summary in to_do),
      desc="Verifying images", unit="B", unit_scale=True, disable=None,
  ) as bar:  # fmt: skip
    for summary in to_do:
      zips[summary.path.name] = {
          "file": _fact(summary.path),
          "num_subjects": summary.num_subjects,
          "num_images": summary.num_images,
          "damaged": find_damaged(summary.path, bar),
      }
      if report_path:
        _write_report(report_path, zips)
  bad = bad_examples.BadExamples(on_bad_example)
  for path in paths:
    for line in zips[path.name]["damaged"]:
      where, what = line.split(": ", 1)
      bad.add(where, what)
  bad.check()
  for line in bad.lines:
    print(line)
  print(
      f"Verified: {len(paths)} zips,"
      f" {sum(summary.num_images for summary in summaries)} images,"
      f" {len(bad)} damaged"
      + (f"; {len(to_do)} of the zips now." if to_do else ". Nothing to do.")
  )
  return len(to_do)
