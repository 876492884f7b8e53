"""The authors' table of privacy costs, recomputed, with what it assumes.

Xu et al. 2023, "Learning to Generate Image Embeddings with User-level
Differential Privacy", results on DigiFace: simulations whose noise and cohort
are multiplied by 64 for a population of 10 million users. The setting (users of
a round, rounds, delta, samplers) reproduces every printed digit. The rows do
not have the same assumption: in the first two, a user moves a round's sum by
one clip norm, in the last by two.
"""

import dataclasses
from typing import Any

from tff_fedemb.accounting import epsilon as epsilon_lib
from tff_fedemb.accounting import report as report_lib
from tff_fedemb.mechanisms import gaussian
from tff_fedemb.mechanisms import registry as aggregators
from tff_fedemb.mechanisms import tree
from tff_fedemb.participation import registry as participations
from tff_fedemb.planning import planning

NUM_USERS = 10_000_000
USERS_PER_CLIENT = 32
COHORT_FACTOR = 64
# 64 virtual clients in the simulation.
USERS_PER_ROUND = 64 * USERS_PER_CLIENT * COHORT_FACTOR
ROUNDS = 800
DELTA = 1e-7


@dataclasses.dataclass(frozen=True)
class PublishedRow:
  """A row as it is printed, and the setting that it follows from.

  Attributes:
    algorithm: Name of the algorithm.
    simulated_noise_multiplier: Noise multiplier before it is multiplied by
      `COHORT_FACTOR`.
    mechanism: Name of the mechanism.
    participation: Name of the participation.
    sensitivity_in_clip_norms: How much a user changes a round's sum, by the
      assumption of the printed figure.
    printed_epsilon: For comparison.
    printed_zcdp: For comparison; None if none is printed.
  """

  algorithm: str
  simulated_noise_multiplier: float
  mechanism: str
  participation: str
  sensitivity_in_clip_norms: float
  printed_epsilon: str
  printed_zcdp: str | None = None


_GAUSSIAN = aggregators.AGGREGATORS.name_of(gaussian.GaussianConfig)
_TREE = aggregators.AGGREGATORS.name_of(tree.TreeConfig)
PUBLISHED = (
  PublishedRow("DP-FedAvg", 0.015, _GAUSSIAN, "fixed_size", 1.0, "5.62"),
  PublishedRow("DP-FedEmb", 0.02, _GAUSSIAN, "fixed_size", 1.0, "3.90"),
  PublishedRow(
    "DP-FTRL-FedEmb", 0.26, _TREE, "min_separation", 2.0, "9.67", "1.28"
  ),
)


@dataclasses.dataclass(frozen=True)
class Row:
  """A row of the table, recomputed in each reading.

  Privacy:
    Unit: a user for `report` and `poisson_epsilon`. For `published_epsilon`, a
      user if `published.sensitivity_in_clip_norms` is that of the report,
      otherwise a whole virtual client.
    Neighbouring relation: the report's.
    Sensitivity: the report's; `published.sensitivity_in_clip_norms` for
      `published_epsilon`; 2 C for `poisson_epsilon`.
    DpEvent: `planning.Plan`.

  Attributes:
    published: The printed row.
    published_epsilon: Epsilon under the assumption of the printed figure.
    published_reading: That assumption, in words.
    report: The whole account in the strict reading, which the participation
      supports for a user.
    poisson_epsilon: Epsilon of the strict reading if users were drawn by
      Poisson sampling, and each was assigned to a virtual client independently;
      None for a mechanism that sampling does not amplify.
  """

  published: PublishedRow
  published_epsilon: float
  published_reading: str
  report: report_lib.PrivacyReport
  poisson_epsilon: float | None

  def to_json(self) -> dict[str, Any]:
    """Returns a dictionary that JSON can hold, infinity as "inf".

    `noise_multiplier`, `zcdp` and `strict_epsilon` repeat figures of the
    report, for readers of tables.
    """
    return report_lib.json_safe(
      dataclasses.asdict(self)
      | {
        "noise_multiplier": self.report.noise_multiplier,
        "zcdp": self.report.zcdp,
        "strict_epsilon": self.report.epsilon,
      }
    )


def compute_table() -> tuple[Row, ...]:
  """Returns the rows of the authors' table, by the RDP accountant.

  Privacy:
    As `Row`.

  Returns:
    One row for each of `PUBLISHED`, in the order of the printed table.
  """
  return tuple(_compute(published) for published in PUBLISHED)


def _create_report(
  published: PublishedRow, participation: str
) -> report_lib.PrivacyReport:
  """Accounts for the setting of a row, with a participation by name.

  Args:
    published: The row, whose noise multiplier is multiplied by `COHORT_FACTOR`.
    participation: Name of the participation, which need not be the row's.
  """
  claim = participations.create_participation(
    participation,
    num_users=NUM_USERS,
    users_per_round=USERS_PER_ROUND,
    users_per_client=USERS_PER_CLIENT,
  )
  plan = planning.create_plan(
    published.mechanism,
    claim,
    rounds=ROUNDS,
    noise_multiplier=published.simulated_noise_multiplier * COHORT_FACTOR,
    delta=DELTA,
    accountants=("rdp",),
  )
  return planning.create_report(plan)


def _compute(published: PublishedRow) -> Row:
  """Accounts for a row in the strict reading and in that of its printed figure.

  If the printed figure assumes one clip norm and the participation has more,
  its epsilon is the report's for a whole virtual client.
  """
  report = _create_report(published, published.participation)
  sensitivity = published.sensitivity_in_clip_norms
  epsilon = report.epsilon
  protects = f"protects a user, {report.neighboring_relation}"
  of_client = report.unit_is_virtual_client_epsilon
  if sensitivity == 1.0 and of_client is not None:
    epsilon, protects = of_client, epsilon_lib.VIRTUAL_CLIENT_UNIT
  poisson_epsilon = None
  if published.mechanism == _GAUSSIAN:
    poisson_epsilon = _create_report(published, "poisson").epsilon
  return Row(
    published,
    published_epsilon=epsilon,
    published_reading=f"Delta = {sensitivity:g} C: {protects}",
    report=report,
    poisson_epsilon=poisson_epsilon,
  )
