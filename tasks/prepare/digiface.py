"""DigiFace-1M as its publishers offer it: zips that the task reads as they are.

Bae et al., "DigiFace-1M: 1 Million Digital Face Images for Face Recognition",
WACV 2023. Nothing is converted here. The zips are verified, image by image,
with the CRCs inside (there are no published checksums), and counted.
"""

import dataclasses
import json
import os
import pathlib

import tqdm

from tasks import digiface_files
from tasks.prepare import downloads
from tff_fedemb import errors
from tff_fedemb.data import bad_examples

# The published zips: first and last subject, images of each.
PUBLISHED = (
  *((first, first + 1999, 72) for first in range(0, 10_000, 2_000)),
  (100_000, 133_332, 5),
  (133_333, 166_665, 5),
  (166_666, 199_998, 5),
)
REPORT_FILE = "preparation.json"


@dataclasses.dataclass(frozen=True)
class ZipSummary:
  """What a zip holds by its directory.

  Attributes:
    path: The zip.
    identities: Its subjects, and the names of their images.
  """

  path: pathlib.Path
  identities: tuple[digiface_files.Identity, ...]

  @property
  def num_images(self) -> int:
    return sum(len(identity.names) for identity in self.identities)

  @property
  def num_bytes(self) -> int:
    """Bytes of all images."""
    return sum(identity.num_bytes for identity in self.identities)


def find_damaged(summary: ZipSummary, bar: tqdm.tqdm) -> list[str]:
  """Reads every image of a zip, which compares its CRC.

  Args:
    summary: The zip.
    bar: Is moved on by the bytes of the images.

  Returns:
    A line for each image that is damaged.

  Raises:
    DataError: If the disk cannot be read.
  """
  damaged = []
  with digiface_files.open_zip(summary.path) as archive:
    for identity in summary.identities:
      for name in identity.names:
        try:
          digiface_files.read_member(archive, name)
        except digiface_files.DamagedError as error:
          damaged.append(f"{summary.path.name}/{name}: {error}")
        bar.update(archive.getinfo(name).file_size)
  return damaged


def _find_zips(source_dir: pathlib.Path) -> list[digiface_files.Source]:
  """The zips by number; says which are there and which are not."""
  sources = [
    source
    for source in digiface_files.find_named_sources(source_dir)
    if source.path.is_file()
  ]
  names = [f"subjects_{a}-{b}_{n}_imgs.zip" for a, b, n in PUBLISHED]
  if not sources:
    raise errors.DataError(
      f"--source_dir={source_dir} must hold some of"
      f" {', '.join(names)} (links: github.com/microsoft/DigiFace1M), found"
      " none."
    )
  present = {source.name for source in sources}
  absent = [name for name in names if name not in present]
  print(
    f"Zips: {len(present)} found"
    + (f", missing {', '.join(absent)}." if absent else ", all there are.")
  )
  return sources


def _tell(summaries: list[ZipSummary]) -> None:
  for summary in summaries:
    print(
      f"{summary.path.name}: {len(summary.identities)} subjects,"
      f" {summary.num_images} images,"
      f" {downloads.format_bytes(summary.num_bytes)}."
    )
  copy = sum(
    s.num_bytes + s.num_images * digiface_files.BYTES_PER_IMAGE
    for s in summaries
  )
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
  raise errors.DataError(
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
  summaries = [
    ZipSummary(source.path, tuple(digiface_files.list_identities(source)))
    for source in _find_zips(source_dir)
  ]
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
    desc="Verifying images",
    unit="B",
    unit_scale=True,
    disable=None,
  ) as bar:
    for summary in to_do:
      zips[summary.path.name] = {
        "file": _fact(summary.path),
        "num_subjects": len(summary.identities),
        "num_images": summary.num_images,
        "damaged": find_damaged(summary, bar),
      }
      if report_path:
        _write_report(report_path, zips)
  bad = bad_examples.BadExamples(on_bad_example)
  for summary in summaries:
    for line in zips[summary.path.name]["damaged"]:
      where, what = line.split(": ", 1)
      bad.add(where, what)
  bad.check()
  for line in bad.lines:
    print(line)
  print(
    f"Verified: {len(summaries)} zips,"
    f" {sum(summary.num_images for summary in summaries)} images,"
    f" {len(bad)} damaged"
    + (f"; {len(to_do)} of the zips now." if to_do else ". Nothing to do.")
  )
  return len(to_do)
