"""Identification figures for galleries of different sizes.

They answer how many people a model tells apart: `identification` has the
definitions of the rates, `plots.identification_plots` draws these figures.
"""

from collections.abc import Sequence
import dataclasses
import itertools
from typing import Any

import numpy as np

from tff_fedemb.evaluation import identification
from tff_fedemb.evaluation import rates as rates_lib

# Share of strangers' images that may be accepted where FNIR is measured.
FALSE_POSITIVE_RATE = 0.01
_IMAGES = (1, 3)
_RANKS = range(1, 21)
_NUM_SIZES = 8


@dataclasses.dataclass(frozen=True)
class OfSize:
  """Figures of galleries of one size.

  Attributes:
    size: Identities enrolled, N.
    rank_one: Share of enrolled people's images whose most similar identity is
      the right one.
    fnir: Share of enrolled people's images not found at the threshold that
      accepts `FALSE_POSITIVE_RATE` of strangers' images; `None` without one.
  """

  size: int
  rank_one: rates_lib.Rate
  fnir: rates_lib.Rate | None


@dataclasses.dataclass(frozen=True)
class Recognition:
  """Figures of galleries with a given number of images of each identity.

  Attributes:
    images: Images that each identity is enrolled with; a probe is compared with
      their mean.
    num_classes: Held-out classes that were enrolled, and were strangers.
    sizes: Figures by size of gallery, ascending; `cmc` and `det` are of the
      last size.
    cmc: Share of enrolled people's images with the right identity among the R
      most similar ones, for R of 1 to 20.
    det: FNIR over FPIR, from the highest threshold down.
  """

  images: int
  num_classes: int
  sizes: tuple[OfSize, ...]
  cmc: tuple[rates_lib.Rate, ...]
  det: tuple[identification.DetPoint, ...]


def evaluate(
  embeddings: np.ndarray,
  labels: np.ndarray,
) -> tuple[Recognition, ...]:
  """Measures galleries with one and with three images of each identity.

  Args:
    embeddings: `[n, dim]` finite numbers, of any length.
    labels: `[n]` class of each embedding.

  Returns:
    Figures for each of these numbers for which most classes have enough images;
    none at all if fewer than 3 classes have two images.
  """
  found = []
  for images in identification.numbers_of_images(labels, _IMAGES):
    found.append(_measure(embeddings, labels, images))
  return tuple(found)


def _measure(
  embeddings: np.ndarray,
  labels: np.ndarray,
  images: int,
) -> Recognition:
  """Measures galleries with `images` images of each identity.

  Sizes are up to eight, evenly spread on a logarithm from 2 to all but two of
  the classes.
  """
  measured = identification.Identification(
    embeddings,
    labels,
    images_of_identity=images,
    compared=identification.MEAN,
  )
  largest = measured.largest_size
  # In a gallery of one, the most similar identity is always right.
  spread = np.geomspace(min(2, largest), largest, _NUM_SIZES)
  sizes = np.unique(spread.round().astype(int)).tolist()
  thresholds = {}
  for size in sizes:
    threshold = measured.threshold(FALSE_POSITIVE_RATE, size)
    if threshold is not None:
      thresholds[size] = threshold
  uses = list(map(identification.Operation, sizes))
  uses += [identification.Operation(largest, rank=rank) for rank in _RANKS]
  uses += itertools.starmap(identification.Operation, thresholds.items())
  # All of them at once: each call compares all images.
  missed = measured.false_negative_rates(uses)
  first = len(sizes) + len(_RANKS)
  fnir = dict(zip(thresholds, missed[first:], strict=True))
  of_sizes = []
  for size, rate in zip(sizes, missed, strict=False):
    of_sizes.append(OfSize(size, rate.complement(), fnir.get(size)))
  of_ranks = missed[len(sizes) : first]
  return Recognition(
    images=images,
    num_classes=measured.num_classes,
    sizes=tuple(of_sizes),
    cmc=tuple(rate.complement() for rate in of_ranks),
    det=tuple(measured.det(largest)),
  )


def to_json(found: Sequence[Recognition]) -> list[dict[str, Any]]:
  """Returns the figures for `json.dump`, with the rule that made them.

  Args:
    found: The result of `evaluate`.

  Returns:
    An object for each number of images: the attributes of `Recognition` by
      name,
    and `rule`, a sentence. A rate is an object of `value`, `low` and `high`.
  """
  rule = (
    "every class was a stranger to all galleries of others, and was enrolled"
    " with all sets of others, by the mean of its images; rates are means over"
    f" these galleries, FNIR at FPIR {FALSE_POSITIVE_RATE:g}"
  )
  return [{"rule": rule, **dataclasses.asdict(part)} for part in found]
