"""Normalizes similarities by a cohort of other classes.

A probe that is similar to many people is similar to some of a gallery, too. Its
score is its similarity less half its mean similarity with the nearest classes
of a cohort, people who are not in the gallery: the test normalization of
Auckenthaler, Carey and Lloyd-Thomas ("Score Normalization for Text-Independent
Speaker Verification Systems", Digital Signal Processing 2000), without the
division by a deviation, and with the nearest of the cohort alone, as in
adaptive normalization. It does not change which identity is most similar.
"""

from __future__ import annotations

import numpy as np

from tff_fedemb import errors
from tff_fedemb.evaluation import pairs

# Both were chosen on 100 characters of Omniglot.
_NUM_NEAREST = 5
_WEIGHT = 0.5
_LEAST = 3


class Cohort:
  """Classes that probes are compared with.

  Attributes:
    means: Mean direction of each class's images, float64 `[c, dim]`, each of
      length 1.
  """

  def __init__(self, embeddings: np.ndarray, labels: np.ndarray):
    """Takes the mean of each class.

    Args:
      embeddings: `[n, dim]` finite numbers, of any length.
      labels: `[n]` class of each; classes are sorted by it.

    Raises:
      errors.FieldError: If there are fewer than 3 classes.
    """
    _, classes, sizes = np.unique(
      labels, return_inverse=True, return_counts=True
    )
    if len(sizes) < _LEAST:
      must = f"have {_LEAST} classes or more"
      raise errors.FieldError("cohort", must, len(sizes))
    unit = pairs.normalize(np.asarray(embeddings))
    by_class = unit[np.argsort(classes, kind="stable")]
    sums = np.add.reduceat(by_class, np.cumsum(sizes) - sizes)
    self.means = pairs.normalize(sums)
    self._count = min(_NUM_NEAREST, len(self.means) - 2)

  def offsets(self, probes: np.ndarray) -> np.ndarray:
    """Computes the offsets to subtract from the similarities of probes.

    Args:
      probes: Embeddings of length 1, `[p, dim]`.

    Returns:
      `[p]`: half the mean cosine with the nearest classes of the cohort, of
      which there are five, or two fewer than classes if that is less.
    """
    similarities = probes @ self.means.T
    nearest = np.partition(similarities, -self._count, axis=1)
    return _WEIGHT * nearest[:, -self._count :].mean(axis=1)

  def offsets_without(
    self,
    probes: np.ndarray,
    classes: np.ndarray,
  ) -> np.ndarray:
    """Computes offsets for probes of the cohort, with two classes left out.

    A probe's own class and the class that it is compared with would otherwise
    be part of its cohort.

    Args:
      probes: Embeddings of length 1, `[p, dim]`.
      classes: Class index of each probe, `[p]`, which is left out of its
        cohort.

    Returns:
      `[p, c]`, as `offsets`; each column leaves out its own class as well.
    """
    similarities = probes @ self.means.T
    similarities[np.arange(len(probes)), classes] = -np.inf
    first = -self._count - 1
    nearest = np.partition(similarities, first, axis=1)[:, first:]
    nearest = np.sort(nearest, axis=1)
    total = nearest[:, 1:].sum(axis=1)
    least = nearest[:, 1]
    # If one of the nearest is left out, the next nearest takes its place.
    is_nearest = similarities >= least[:, np.newaxis]
    change = np.where(is_nearest, nearest[:, :1] - similarities, 0.0)
    return _WEIGHT * (total[:, np.newaxis] + change) / self._count
