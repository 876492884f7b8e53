"""The record on disk of who took part in which round.

A guarantee that bounds how often and how close together users take part holds
for what a run did, not for what was planned. The trace is written while the
run goes on; `participation_check` derives from it alone how often and how far
apart users took part.

A trace is as sensitive as the seed that drew the users: where the guarantee
claims amplification by sampling, nobody may know the rounds of a user, and
users have not agreed to be listed. Only its owner may read the file.

A file is a header and one record per round, integers little-endian:

* header: magic, version, number of users, CRC-32 of these;
* record: number of the round, of its virtual clients and of its users, bytes
  of the payload, CRC-32 of the payload, CRC-32 of these; then the payload,
  compressed by zlib, with 64 bits a number, the lowest bytes of all numbers
  first. The numbers are how many slots are left out before each user of the
  round, in the order of the slots, and each user's place, which is the number
  of their virtual client in the order of its first user. As the first are gaps,
  no user can appear twice in a round. If every user is alone in a client, the
  record has no places.
"""

from collections.abc import Iterator, Sequence
import contextlib
import dataclasses
import hashlib
import os
import struct
from typing import BinaryIO
import zlib

import numpy as np

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb import whole_files

_MAGIC = b"FEMBWHO\n"
_VERSION = 3
_HEADER = struct.Struct("<8sIQ")
_RECORD = struct.Struct("<5I")
_CRC = struct.Struct("<I")
_HEADER_SIZE = _HEADER.size + _CRC.size
_RECORD_SIZE = _RECORD.size + _CRC.size


@dataclasses.dataclass(frozen=True)
class RecordedRound:
  """The users and virtual clients of a round.

  Attributes:
    number: Number of the round, from 0.
    num_clients: Number of its virtual clients.
    slots: `[n]` int64 slots of its users, sorted.
    places: `[n]` virtual client of each of them, numbered in the order of
      `slots`.
  """

  number: int
  num_clients: int
  slots: np.ndarray
  places: np.ndarray

  @classmethod
  def of(cls, number: int, clients: Sequence[np.ndarray]) -> "RecordedRound":
    """Creates the record of a round.

    Args:
      number: Number of the round.
      clients: Integer slots of the users of each virtual client, in any order.

    Returns:
      The record, which does not depend on the order of the clients or of their
      users.

    Raises:
      ValueError: If a virtual client has no user.
      TypeError: If slots are not integers.
    """
    if not all(map(len, clients)):
      raise ValueError("A virtual client must have a user, found none in one.")
    slots = np.concatenate(
      [np.empty(0, np.int64), *clients], dtype=np.int64, casting="same_kind"
    )
    sizes = list(map(len, clients))
    places = np.repeat(np.arange(len(clients)), sizes)
    order = np.argsort(slots, kind="stable")
    _, first, places = np.unique(
      places[order], return_index=True, return_inverse=True
    )
    # Clients are renumbered in the order of their first users.
    places = np.argsort(np.argsort(first))[places]
    return cls(number, len(clients), slots[order], places)

  @property
  def users_alone(self) -> bool:
    """Whether each user was a virtual client."""
    return self.num_clients == self.slots.size

  @property
  def digest(self) -> str:
    """SHA-256 of the record, in hexadecimal digits.

    It is equal for equal rounds, so that a chain of a run can name the users of
    a round without listing them.
    """
    counts = [self.number, self.num_clients, self.slots.size]
    numbers = np.concatenate([counts, self.slots, self.places])
    return hashlib.sha256(numbers.astype("<i8").tobytes()).hexdigest()

  def is_as(self, other: "RecordedRound") -> bool:
    """Returns whether the same users took part, in the same virtual clients.

    Args:
      other: The same round, recorded elsewhere or drawn again.

    Returns:
      True if both digests are equal, which also compares the rounds' numbers.
    """
    return self.digest == other.digest


class TraceError(errors.DataError):
  """A trace is missing, damaged, or contradicts the run."""


def _seal(packed: bytes) -> bytes:
  """The bytes with their CRC-32 at the end, four bytes little-endian."""
  return packed + _CRC.pack(zlib.crc32(packed))


def _unseal(layout: struct.Struct, data: bytes) -> tuple | None:
  """The fields of sealed bytes; None if they are incomplete or damaged.

  Args:
    layout: Format of the fields.
    data: What `_seal` returned, or less after a crash.
  """
  packed = data[: layout.size]
  if data != _seal(packed):
    return None
  return layout.unpack(packed)


class Trace(contextlib.AbstractContextManager):
  """An open trace and where its rounds are.

  Use it in a `with` block, which closes the file. Opening reads the headers of
  all records, and no payload but the last; `read` loads one round at a time.

  Attributes:
    num_users: Size of the population.
  """

  def __init__(self, path: str | os.PathLike[str], file: BinaryIO):
    """Finds the rounds of a trace, or closes its file if there are none.

    Args:
      path: The file, for messages.
      file: The open file.

    Raises:
      TraceError: If it is no trace, or it is damaged.
    """
    self._path = os.fspath(path)
    self._file = file
    # First byte of each round's record, and its fields.
    self._records: list[tuple[int, tuple]] = []
    self._end = _HEADER_SIZE
    try:
      self._open()
    except BaseException:
      self.close()
      raise

  def _open(self) -> None:
    """Reads the header, and finds the rounds."""
    header = _unseal(_HEADER, self._file.read(_HEADER_SIZE))
    if header is None or header[0] != _MAGIC:
      raise self._error("a trace of participation", "another file or damage")
    _, version, self.num_users = header
    if version != _VERSION:
      raise self._error(f"a trace of version {_VERSION}", version)
    self._find_rounds()

  def _error(self, requirement: str, found: object) -> TraceError:
    """The error of a file that does not meet a requirement."""
    return TraceError(f"{self._path} must be {requirement}, found {found}.")

  def _find_rounds(self) -> None:
    """Finds all rounds, except a last one that was not written to its end."""
    file_size = os.fstat(self._file.fileno()).st_size
    while self._end + _RECORD_SIZE <= file_size:
      self._file.seek(self._end)
      record = _unseal(_RECORD, self._file.read(_RECORD_SIZE))
      if record is None or record[0] != self.num_rounds:
        raise self._damage(self.num_rounds, self._end)
      end = self._end + _RECORD_SIZE + record[-2]
      if end > file_size:
        break
      self._records.append((self._end, record))
      self._end = end
    whole = self._end == file_size
    # After a power failure, a file may end in space that was never written.
    if whole and self._records and self._read_payload(-1) is None:
      self._end, _ = self._records.pop()

  def _read_payload(self, round_num: int) -> bytes | None:
    """The payload of a round; None if it is damaged."""
    offset, (*_, size, crc) = self._records[round_num]
    self._file.seek(offset + _RECORD_SIZE)
    payload = self._file.read(size)
    if zlib.crc32(payload) != crc:
      return None
    return payload

  def _read_round(self, round_num: int) -> RecordedRound:
    """A recorded round; the inverse of `TraceWriter.record`."""
    offset, (_, num_clients, num_slots, _, _) = self._records[round_num]
    payload = self._read_payload(round_num)
    if payload is None:
      raise self._damage(round_num, offset)
    unpacked = np.frombuffer(zlib.decompress(payload), np.uint8)
    planes = unpacked.reshape(8, -1)
    numbers = planes.T.copy().view("<i8")[:, 0]
    gaps, places = np.split(numbers, [num_slots])
    slots = np.cumsum(gaps + 1) - 1
    if num_clients == num_slots:
      places = np.arange(num_slots)
    return RecordedRound(round_num, num_clients, slots, places)

  def _damage(self, round_num: int, offset: int) -> TraceError:
    """The error of a damaged record."""
    return self._error(
      "whole up to its last round",
      f"damage in the record of round {round_num} at byte {offset}",
    )

  @property
  def num_rounds(self) -> int:
    """Number of rounds in the trace, which are 0 ... num_rounds - 1."""
    return len(self._records)

  def read(self, stop: int | None = None) -> Iterator[RecordedRound]:
    """Reads rounds 0 ... `stop` - 1, all if None.

    Args:
      stop: One past the last round; all rounds if there are fewer.

    Yields:
      One round after the other, from the disk.

    Raises:
      TraceError: If a record is damaged.
    """
    yield from map(self._read_round, range(self.num_rounds)[:stop])

  def close(self) -> None:
    """Closes the file."""
    self._file.close()

  def __exit__(self, *exception) -> None:
    """Closes the file, also after an error."""
    self.close()


class TraceWriter(Trace):
  """Records who took part, and with whom, round by round.

  A round is on the disk when `record` returns.
  """

  def __init__(self, path: str | os.PathLike[str], num_users: int):
    """Creates a trace for its owner only, or opens one to go on with it.

    A last record that was not written to its end is dropped.

    Args:
      path: The file.
      num_users: Size of the population, at least 1.

    Raises:
      TraceError: If the file is no trace, is damaged elsewhere than in its
        last record, or is of another population.
      ValueError: If the number of users is not positive.
      OSError: If the file cannot be written.
    """
    checks.check_integer("num_users", num_users, minimum=1)
    if not os.path.exists(path):
      with whole_files.replacing(path) as partial:
        partial.touch(0o600)
        partial.write_bytes(_seal(_HEADER.pack(_MAGIC, _VERSION, num_users)))
    os.chmod(path, 0o600)
    super().__init__(path, open(path, "r+b"))  # noqa: SIM115
    if self.num_users != num_users:
      self.close()
      raise self._error(f"a trace of {num_users} users", self.num_users)
    self._file.truncate(self._end)

  def record(self, round_num: int, clients: Sequence[np.ndarray]) -> str:
    """Appends a round, or checks one that is done again.

    A run that was killed repeats the rounds since its last checkpoint. With the
    same users and the same noise, a repeated round costs nothing. With other
    users it would be another round, which is not accounted for.

    Args:
      round_num: Number of the round: at most the first that is not recorded.
      clients: Integer slots of the users of each virtual client.

    Returns:
      The digest of the record.

    Raises:
      TraceError: If the round is recorded with other users.
      ValueError: If rounds are left out, or a slot is out of range or repeated.
    """
    if not 0 <= round_num <= self.num_rounds:
      raise ValueError(
        f"round_num must be at least 0 and at most {self.num_rounds}, the"
        f" first round that is not recorded, found {round_num}."
      )
    found = RecordedRound.of(round_num, clients)
    self._check_slots(found.slots)
    if round_num < self.num_rounds:
      self._check_as_recorded(found)
      return found.digest
    numbers = np.diff(found.slots, prepend=-1) - 1
    if not found.users_alone:
      numbers = np.concatenate([numbers, found.places])
    planes = numbers.astype("<i8").view(np.uint8).reshape(-1, 8).T
    # Random numbers compress by their leading zeros alone; a more thorough
    # search would take many times as long.
    compressor = zlib.compressobj(strategy=zlib.Z_RLE)
    payload = compressor.compress(planes.tobytes())
    payload += compressor.flush()
    counts = (round_num, found.num_clients, found.slots.size)
    record = (*counts, len(payload), zlib.crc32(payload))
    self._file.seek(self._end)
    self._file.write(_seal(_RECORD.pack(*record)) + payload)
    self._file.flush()
    os.fsync(self._file.fileno())
    self._records.append((self._end, record))
    self._end = self._file.tell()
    return found.digest

  def _check_slots(self, slots: np.ndarray) -> None:
    """Refuses sorted slots that are out of range or repeated."""
    if slots.size and not 0 <= slots[0] <= slots[-1] < self.num_users:
      raise ValueError(
        f"slots must be at least 0 and below {self.num_users}, found"
        f" {slots[0]} ... {slots[-1]}."
      )
    repeated = np.flatnonzero(slots[1:] == slots[:-1])
    if repeated.size:
      raise ValueError(
        "a slot must be in one virtual client of a round at most, found slot"
        f" {slots[repeated[0]]} repeated."
      )

  def _check_as_recorded(self, found: RecordedRound) -> None:
    """Refuses a round that is recorded with other users."""
    recorded = self._read_round(found.number)
    if found.is_as(recorded):
      return
    differing = np.setxor1d(found.slots, recorded.slots, assume_unique=True)
    example = f", such as slot {differing[0]}" if differing.size else ""
    raise TraceError(
      f"the participation of round {found.number} must be as recorded in"
      f" {self._path}, {recorded.slots.size} users in {recorded.num_clients}"
      f" virtual clients, found {found.slots.size} in {found.num_clients}, with"
      f" {differing.size} users in one of them only{example}."
    )


class TraceReader(Trace):
  """Reads a trace as it was when you opened it, even while it is written."""

  def __init__(self, path: str | os.PathLike[str]):
    """Opens a trace.

    Args:
      path: The file. A last record that is not complete is left out.

    Raises:
      TraceError: If there is no such file, it is no trace, or it is damaged.
    """
    try:
      file = open(path, "rb")  # noqa: SIM115
    except OSError as error:
      raise TraceError(
        f"{os.fspath(path)} must be a trace of participation, found:"
        f" {error.strerror}."
      ) from error
    super().__init__(path, file)

  def __iter__(self) -> Iterator[RecordedRound]:
    """Yields all rounds, as `read`."""
    return self.read()
