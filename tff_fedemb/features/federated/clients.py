"""Labelled features by client id, for federated fits.

A client's computation reads its examples by itself, from files of records of
equal length that are sorted by client: memory does not grow with the number of
clients, and any process of the machine can be the one that reads.
"""

import collections
from collections.abc import Sequence
import os
import pathlib

import numpy as np
import tensorflow as tf

from tff_fedemb import errors
from tff_fedemb.data import pipelines
from tff_fedemb.features import examples as examples_lib

# TensorFlow reads a file from its beginning to get to a record in it: one that
# is as long as this gets no further client.
_BYTES_OF_FILE = 2**22
_ROWS_OF_CHUNK = 2**14
_READING_BATCH = 512
_WORD = 4


def check_users(users: np.ndarray | Sequence, num_examples: int) -> np.ndarray:
  """Returns the examples' users, strings or integers, as strings `[n]`.

  Raises:
    errors.FieldError: If they are anything else, or one has no name.
  """
  users = np.asarray(users)
  if users.dtype.kind == "O" and all(isinstance(user, str) for user in users):
    users = users.astype(str)
  examples_lib.check_of_each(
    "users", users, num_examples, kinds="Uiu", words="strings or integers"
  )
  users = users.astype(str)
  if (users == "").any():
    raise errors.FieldError("users", "have names", "''")
  return users


class ClientExamples:
  """The examples of each client, in files of a folder.

  Attributes:
    client_ids: All clients, sorted; each has an example.
  """

  def __init__(
    self,
    directory: str | os.PathLike[str],
    features: np.ndarray,
    labels: np.ndarray,
    users: np.ndarray,
  ):
    """Writes the files; they are read as long as the object is in use.

    Args:
      directory: An empty folder.
      features: `[n, d]`, numbers that are finite in float32.
      labels: int64 `[n]`, in [0, 2^31).
      users: Strings `[n]`, whose example each is.

    Raises:
      errors.FieldError: If a number is not finite.
    """
    self._directory = pathlib.Path(directory).resolve()
    self._dim = features.shape[1]
    self._record_bytes = _WORD * (self._dim + 1)
    order = np.argsort(users, kind="stable")
    names, firsts = np.unique(users[order], return_index=True)
    self.client_ids: list[str] = names.tolist()
    firsts = firsts * self._record_bytes
    ends = np.append(firsts[1:], len(users) * self._record_bytes)
    # Whose first bytes are in the same stretch of all bytes share a file.
    _, starters, files = np.unique(
      firsts // _BYTES_OF_FILE, return_index=True, return_inverse=True
    )
    file_starts = firsts[starters]
    file_ends = np.append(file_starts[1:], ends[-1])
    # Of each client: file, and bytes of the file before and after its own.
    self._places = np.stack(
      [files, firsts - file_starts[files], file_ends[files] - ends], axis=1
    ).astype(np.int64)
    for number, (start, end) in enumerate(
      zip(file_starts, file_ends, strict=True)
    ):
      rows = order[start // self._record_bytes : end // self._record_bytes]
      with open(self._directory / str(number), "wb") as file:
        for first in range(0, len(rows), _ROWS_OF_CHUNK):
          chunk = rows[first : first + _ROWS_OF_CHUNK]
          self._records(features[chunk], labels[chunk]).tofile(file)

  def _records(self, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Features and the label of each example, as int32 `[b, d + 1]`."""
    records = np.empty([len(labels), self._dim + 1], "<i4")
    with np.errstate(over="ignore"):
      numbers = features.astype("<f4")
    if not np.isfinite(numbers).all():
      count = np.count_nonzero(~np.isfinite(numbers).all(axis=1))
      raise errors.FieldError(
        "features",
        "be finite numbers in single precision",
        f"{count} or more examples with others",
      )
    records[:, :-1] = numbers.view("<i4")
    records[:, -1] = labels
    return records

  def create_dataset(self, client_id: tf.Tensor) -> tf.data.Dataset:
    """Examples of a client, in TensorFlow operations only.

    They are batches `OrderedDict(x=float32 [b, d], y=int64 [b])`. Of no client,
    the computation fails.
    """
    table = tf.lookup.StaticHashTable(
      tf.lookup.KeyValueTensorInitializer(
        tf.constant(self.client_ids),
        tf.range(len(self.client_ids), dtype=tf.int64),
      ),
      default_value=-1,
    )
    row = table.lookup(client_id)
    known = tf.debugging.assert_greater_equal(
      row,
      tf.constant(0, tf.int64),
      "client_id must be one of a client with examples, found another.",
    )
    with tf.control_dependencies([known]):
      file, before, after = tf.unstack(
        tf.gather(tf.constant(self._places), row)
      )
    path = tf.strings.join(
      [os.path.join(self._directory, ""), tf.strings.as_string(file)]
    )
    records = tf.data.FixedLengthRecordDataset(
      path, self._record_bytes, header_bytes=before, footer_bytes=after
    )
    return (
      records.batch(_READING_BATCH)
      .map(self._parse)
      .with_options(pipelines.build_options())
    )

  def _parse(
    self, records: tf.Tensor
  ) -> collections.OrderedDict[str, tf.Tensor]:
    words = tf.ensure_shape(
      tf.io.decode_raw(records, tf.int32), [None, self._dim + 1]
    )
    return collections.OrderedDict(
      x=tf.bitcast(words[:, :-1], tf.float32), y=tf.cast(words[:, -1], tf.int64)
    )
