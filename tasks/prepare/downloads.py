"""Archives as their publishers offer them, and the checksums that they give."""

from collections.abc import Iterable
import dataclasses
import hashlib
import pathlib
import re

from tff_fedemb import errors

# MD5 by file name. The CSV files and the zip: TensorFlow Federated 0.87, which
# checks them when it downloads. The iNaturalist archives: the README of the
# 2017 competition by its publishers, and TFF. DigiFace-1M has no published
# checksums, but its zips carry a CRC of every image.
KNOWN_MD5 = {
  "landmarks-user-160k.zip": "53c36bd7d5fc12f927af2820b7e4a57c",
  "mini_gld_train_split.csv": "9fd62cf79a67046fdd673d3a0ac52841",
  "mini_gld_test.csv": "298e9d19d66357236f66fe8e22920933",
  "iNaturalist_train.csv": "63d5a41699434bc2b13f5853f3764c18",
  "iNaturalist_test.csv": "bcf08a5a740ee76dac4e5af668081891",
  "train_val_images.tar.gz": "7c784ea5e424efaec655bd392f87301f",
  "test2017.tar.gz": "7d9b096fa1cd94d67a0fa779ea301234",
}


@dataclasses.dataclass
class Archive:
  """A file of images.

  Attributes:
    path: A tar, plain or compressed.
    md5: What the publisher says its MD5 is; None if that is not known.
    is_verified: Whether this program has found it to be so.
  """

  path: pathlib.Path
  md5: str | None = None
  is_verified: bool = False

  @property
  def is_compressed(self) -> bool:
    """Whether it must be read from its start to get at any image in it."""
    return self.path.suffix == ".gz"


def read_md5_file(path: pathlib.Path) -> str:
  """Reads a checksum as `md5sum` prints it: digits first, then maybe a name.

  Args:
    path: The file.

  Returns:
    32 hexadecimal digits, in lower case.

  Raises:
    DataError: If the file says something else.
  """
  words = path.read_text(errors="replace").lower().split()
  digits = words[0] if words else ""
  if not re.fullmatch("[0-9a-f]{32}", digits):
    raise errors.DataError(
      f"{path} must start with an MD5 of 32 hexadecimal digits, found"
      f" {digits[:40]!r}. Fetch it again."
    )
  return digits


def compute_md5(path: pathlib.Path) -> str:
  """Computes the MD5 of a file: 32 hexadecimal digits, in lower case."""
  digest = hashlib.md5()
  with path.open("rb") as file:
    while chunk := file.read(1 << 20):
      digest.update(chunk)
  return digest.hexdigest()


def check_md5(
  path: pathlib.Path, *, expected: str | None = None, found: str | None = None
) -> None:
  """Checks that a file is what its publisher offers.

  Args:
    path: The file.
    expected: Its MD5; that of `KNOWN_MD5` by default, if there is one.
    found: What its MD5 is, if that is known already.

  Raises:
    DataError: If its MD5 is another one.
  """
  expected = expected or KNOWN_MD5.get(path.name)
  if expected and (found := found or compute_md5(path)) != expected:
    raise errors.DataError(
      f"{path} must have MD5 {expected}, found {found}. Fetch it again."
    )


def format_bytes(count: float) -> str:
  """For instance "12.3 GB", in powers of 1000."""
  units = ["B", "kB", "MB", "GB", "TB"]
  while count >= 1000 and len(units) > 1:
    count /= 1000
    units.pop(0)
  return f"{count:.0f} B" if units[0] == "B" else f"{count:.1f} {units[0]}"


def format_names(names: Iterable[str]) -> str:
  """The first three names, and the number of the others."""
  names = list(names)
  more = f" and {len(names) - 3} more" if len(names) > 3 else ""
  return ", ".join(names[:3]) + more
