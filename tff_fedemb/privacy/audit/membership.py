"""How well scores tell members from others, with intervals.

Carlini et al. 2022, "Membership Inference Attacks From First Principles": what
counts is the true positive rate at low false positive rates; DeLong et al. 1988
for the variance of the area under the curve.
"""

from collections.abc import Sequence
import dataclasses
import math
from typing import Any

import numpy as np
from scipy import stats

from tff_fedemb.privacy.audit import clopper_pearson
from tff_fedemb.privacy.audit import scores as scores_lib

FALSE_POSITIVE_RATES = (1e-2, 1e-3)


@dataclasses.dataclass(frozen=True)
class OperatingPoint:
  """True positive rate at a false positive rate.

  Attributes:
    target: The false positive rate that was asked for.
    false_positive_rate: That of the threshold, measured; at most the target.
    false_positive_interval: Of the threshold, Clopper-Pearson.
    true_positive_rate: Measured.
    true_positive_interval: Clopper-Pearson.
  """

  target: float
  false_positive_rate: float
  false_positive_interval: tuple[float, float]
  true_positive_rate: float
  true_positive_interval: tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Membership:
  """What an attacker could know.

  Attributes:
    auc: Probability that a member scores higher than another, ties halved.
    auc_interval: By DeLong's variance.
    points: True positive rates, one for each false positive rate.
    confidence: Of each of the intervals.
  """

  auc: float
  auc_interval: tuple[float, float]
  points: tuple[OperatingPoint, ...]
  confidence: float

  def to_json(self) -> dict[str, Any]:
    """Returns a dictionary that JSON can hold."""
    return dataclasses.asdict(self)


def _interval(count: int, total: int, error: float) -> tuple[float, float]:
  return (
    float(clopper_pearson.lower_limit(count, total, error / 2)),
    float(clopper_pearson.upper_limit(count, total, error / 2)),
  )


def _operating_point(
  scores: scores_lib.Scores, target: float, error: float
) -> OperatingPoint:
  others = np.sort(scores.out_scores)[::-1]
  # Scores above the first one that may not be accepted.
  threshold = others[math.floor(target * len(others) + 1e-9)]
  accepted = int(np.sum(scores.in_scores > threshold))
  wrongly = int(np.sum(others > threshold))
  num_in, num_out = len(scores.in_scores), len(others)
  return OperatingPoint(
    target=target,
    false_positive_rate=wrongly / num_out,
    false_positive_interval=_interval(wrongly, num_out, error),
    true_positive_rate=accepted / num_in,
    true_positive_interval=_interval(accepted, num_in, error),
  )


def measure(
  scores: scores_lib.Scores,
  *,
  significance: float,
  false_positive_rates: Sequence[float] = FALSE_POSITIVE_RATES,
) -> Membership:
  """Measures how well scores tell members from others.

  Args:
    scores: Of members and of others.
    significance: Probability that an interval is wrong.
    false_positive_rates: At which the true positive rate is wanted, in [0, 1).
  """
  members, others = np.sort(scores.in_scores), np.sort(scores.out_scores)

  def placements(values, among):
    below = np.searchsorted(among, values)
    return (below + np.searchsorted(among, values, "right")) / (2 * len(among))

  above_others = placements(members, others)
  auc = float(np.mean(above_others))
  variance = np.var(above_others, ddof=1) / len(members)
  variance += np.var(placements(others, members), ddof=1) / len(others)
  reach = stats.norm.isf(significance / 2) * math.sqrt(variance)
  return Membership(
    auc,
    (max(auc - reach, 0.0), min(auc + reach, 1.0)),
    tuple(
      _operating_point(scores, rate, significance)
      for rate in false_positive_rates
    ),
    1.0 - significance,
  )
