"""Recognition of people of several groups, at one threshold.

A model that is right for most may fail a few: Grother et al., "Face Recognition
Vendor Test Part 3: Demographic Effects", NISTIR 8280, 2019. All groups have the
thresholds of all images; strangers, galleries and pairs are of one group, where
mistakes are likeliest.
"""

from collections.abc import Mapping
import dataclasses

import numpy as np

from tff_fedemb.evaluation import identification

# The figures of fewer classes would be about single people.
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
    num_classes: Its classes that have two images.
    far: Share of pairs of two of its classes that are accepted, at the
      threshold of all images for `FALSE_ACCEPT_RATE`.
    recall: Share of pairs of one class that are accepted there.
    fnir: Share of images of somebody enrolled that are not found in a gallery
      of `GALLERY_SIZE` of the group, with an image each, at the threshold of
      all images for `FALSE_POSITIVE_RATE`; `None` without such a threshold.
    share_of_training_users: Share of the training users who are of the group;
      `None` if that is not known.
  """

  name: str
  num_classes: int
  far: identification.Rate
  recall: identification.Rate
  fnir: identification.Rate | None
  share_of_training_users: float | None


def evaluate(
  embeddings: np.ndarray,
  labels: np.ndarray,
  names: np.ndarray,
  *,
  threshold: float,
  training_shares: Mapping[str, float] | None = None,
) -> tuple[list[Group], list[str]]:
  """Measures each group of at least `MIN_CLASSES` classes of two images.

  Privacy:
    Nothing has noise. Smaller groups are left out; that protects nobody whose
    images are measured.

  Args:
    embeddings: `[n, dim]` finite numbers, of any length.
    labels: `[n]` class of each embedding.
    names: `[n]` group of its class; "" for none.
    threshold: Cosine similarity from which on a pair is accepted.
    training_shares: Share of each group among the training users.

  Returns:
    The groups, and notes on them.
  """
  gallery_threshold = identification.Identification(
    embeddings, labels
  ).threshold(FALSE_POSITIVE_RATE, GALLERY_SIZE)
  found, small = [], []
  for name in np.unique(names[names != ""]).tolist():
    rows = names == name
    _, counts = np.unique(labels[rows], return_counts=True)
    if np.sum(counts > 1) < MIN_CLASSES:
      small.append(name)
      continue
    measured = identification.Identification(embeddings[rows], labels[rows])
    uses = [identification.Operation(1, threshold)]
    if gallery_threshold is not None:
      uses.append(identification.Operation(GALLERY_SIZE, gallery_threshold))
    missed, *fnir = measured.false_negative_rates(uses)
    found.append(
      Group(
        name=name,
        num_classes=measured.num_classes,
        far=measured.false_positive_rate(threshold, 1),
        recall=missed.complement(),
        fnir=fnir[0] if fnir else None,
        share_of_training_users=(training_shares or {}).get(name),
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
