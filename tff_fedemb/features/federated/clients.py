"""Labelled features by client id, for federated fits.

A client's computation reads its examples by itself, from a file of its own with
records of equal length: memory does not grow with the number of clients, and
any process of the machine can be the one that reads.
"""

import collections
import os
import pathlib

import numpy as np
import tensorflow as tf

from tff_fedemb import errors
from tff_fedemb.data import pipelines

_READING_BATCH = 512
_WORD = 4


class ClientExamples:
  """The examples of each client, in files of a folder.

  Attributes:
    client_ids: All clients: '0' is the user whose name sorts first, and so on.
      Each has an example.
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
    order = np.argsort(users, kind="stable")
    _, firsts = np.unique(users[order], return_index=True)
    self.client_ids = [str(number) for number in range(len(firsts))]
    for client_id, rows in zip(
      self.client_ids, np.split(order, firsts[1:]), strict=True
    ):
      records = np.empty([len(rows), self._dim + 1], "<i4")
      with np.errstate(over="ignore"):
        numbers = features[rows].astype("<f4")
      is_finite = np.isfinite(numbers).all(axis=1)
      if not is_finite.all():
        raise errors.FieldError(
          "features",
          "be finite numbers in single precision",
          f"{np.count_nonzero(~is_finite)} or more examples with others",
        )
      records[:, :-1] = numbers.view("<i4")
      records[:, -1] = labels[rows]
      records.tofile(self._directory / client_id)

  def create_dataset(self, client_id: tf.Tensor) -> tf.data.Dataset:
    """Examples of a client, in TensorFlow operations only.

    They are batches `OrderedDict(x=float32 [b, d], y=int64 [b])`. The
    computation fails for a client that is not known.
    """
    path = tf.strings.join([os.path.join(self._directory, ""), client_id])
    records = tf.data.FixedLengthRecordDataset(path, _WORD * (self._dim + 1))
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
