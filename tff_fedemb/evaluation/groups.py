"""Recognition of people of several groups, at one threshold.

A model that is right for most people may fail for a few: Grother et al., "Face
Recognition Vendor Test Part 3: Demographic Effects", NISTIR 8280, 2019. One
threshold, set on all images, holds for all groups. Strangers, galleries and
pairs come from the same group, where mistakes are most likely.
"""

from collections.abc import Mapping
import dataclasses

import numpy as np

from tff_fedemb.evaluation import identification
from tff_fedemb.evaluation import rates as rates_lib

# Figures of fewer classes would describe single people.
MIN_CLASSES = 20
FALSE_ACCEPT_RATE = 1e-3
FALSE_POSITIVE_RATE = 1e-2
GALLERY_SIZE = 10
_NOT_PRIVATE = (
  "Shares of training users are counted without noise: no guarantee covers"
  " them. Do not give them away with the model."
)


@dataclasses.dataclass(frozen=True)
class Group:
  """Figures of a group, means over its classes, with intervals over classes.

  Attributes:
    name: Name of the group in the table.
    num_classes: Number of its classes that have at least two images.
    far: Share of pairs of two of its classes that are accepted, at the
      threshold of all images for `FALSE_ACCEPT_RATE`.
    recall: Share of pairs of one class that are accepted there.
    fnir: Share of images of enrolled people that are not found in a gallery of
      `GALLERY_SIZE` people of the group, with one image each, at the threshold
      of all images for `FALSE_POSITIVE_RATE`; `None` without a threshold.
    share_of_training_users: Share of the training users who are in the group;
      `None` if not known.
  """

  name: str
  num_classes: int
  far: rates_lib.Rate
  recall: rates_lib.Rate
  fnir: rates_lib.Rate | None
  share_of_training_users: float | None


def evaluate(
  embeddings: np.ndarray,
  labels: np.ndarray,
  names: np.ndarray,
  *,
  threshold: float,
  training_shares: Mapping[str, float] | None = None,
) -> tuple[list[Group], list[str]]:
  """Measures each group of at least `MIN_CLASSES` classes with two images.

  Privacy:
    Nothing has noise. Smaller groups are left out, which protects none of the
    people whose images are measured.

  Args:
    embeddings: `[n, dim]` finite numbers, of any length.
    labels: `[n]` class of each embedding.
    names: `[n]` group of each embedding's class; "" for none.
    threshold: Smallest cosine similarity at which a pair is accepted, such as
      that of all images for `FALSE_ACCEPT_RATE`.
    training_shares: Share of each group among the training users, in [0, 1];
      `None` if not known.

  Returns:
    The groups, by name, and notes on them: which groups were left out, and that
    the training shares are not private.

  Raises:
    errors.FieldError: If fewer than 3 classes of all have two images.
  """
  large = {}
  small = []
  for name in np.unique(names[names != ""]).tolist():
    rows = names == name
    _, counts = np.unique(labels[rows], return_counts=True)
    if np.sum(counts > 1) < MIN_CLASSES:
      small.append(name)
    else:
      large[name] = rows
  gallery_threshold = None
  if large:
    whole = identification.Identification(embeddings, labels)
    gallery_threshold = whole.threshold(FALSE_POSITIVE_RATE, GALLERY_SIZE)
  found = []
  for name, rows in large.items():
    share = None
    if training_shares is not None:
      # Shares are of all users who train: a group without one has none.
      share = training_shares.get(name, 0.0)
    measured = identification.Identification(embeddings[rows], labels[rows])
    uses = [identification.Operation(1, threshold)]
    if gallery_threshold is not None:
      uses.append(identification.Operation(GALLERY_SIZE, gallery_threshold))
    missed = measured.false_negative_rates(uses)
    found.append(
      Group(
        name=name,
        num_classes=measured.num_classes,
        far=measured.false_positive_rate(threshold, 1),
        recall=missed[0].complement(),
        fnir=missed[1] if len(missed) > 1 else None,
        share_of_training_users=share,
      )
    )
  notes = []
  if small:
    notes.append(
      f"left out {len(small):,} of {len(found) + len(small):,} groups, of fewer"
      f" than {MIN_CLASSES} classes with two images: {', '.join(small[:10])}"
    )
  if training_shares:
    notes.append(_NOT_PRIVATE)
  return found, notes
