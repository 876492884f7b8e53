"""The cost of several runs on the same users together, for a privacy budget.

The events of all runs are given to one accountant, which costs less than to add
up the epsilons of the runs. A later run's clients may depend on what an earlier
one released, for example by starting from its model. Its noise, cohort,
sampling and number of rounds must not: composition by privacy loss
distributions is not proven for parameters that are chosen by earlier outputs
(Rogers et al. 2016, "Privacy Odometers and Filters: Pay-as-you-Go Composition",
arXiv 1605.08294).
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
import math

import dp_accounting

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.accounting import arithmetic
from tff_fedemb.accounting import balls_in_bins
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import epsilon as epsilon_lib
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.accounting import tuning


def compose(
  ledgers: Sequence[ledger_lib.Ledger],
  delta: float,
  *,
  tunings: Sequence[tuple[ledger_lib.Ledger, tuning.RepeatAndSelect]] = (),
) -> float:
  """Returns the epsilon of all rounds of several runs on the same users.

  Privacy:
    Unit: user.
    Neighbouring relation: that of the participations, the same for all; the
      user's slot stays empty in every run.
    Sensitivity: each participation's own.
    DpEvent: the adaptive composition of the runs' `composed_events`, and of a
      `RepeatAndSelectDpEvent` for each tuning.

  Args:
    ledgers: Ledgers of the runs; their own deltas are ignored, and those
      without a round are left out.
    delta: Delta of the result, in (0, 1).
    tunings: For each tuning, the ledger of one trial, and how the number of
      trials was drawn. With a tuning, only RDP is asked.

  Returns:
    Epsilon by the tightest accountant that all runs have, plus the cost of the
    arithmetic of independent noise; 0 without a round.

  Raises:
    errors.FieldError: If delta is out of its range, or if these runs cannot be
      composed: their neighbouring relations differ, they have no accountant in
      common, or one of them is accounted for by Monte Carlo.
  """
  checks.check_delta(delta)
  ledgers = [each for each in ledgers if each.rounds]
  if not ledgers and not tunings:
    return 0.0
  counts: collections.Counter[dp_accounting.DpEvent] = collections.Counter()
  for each in ledgers:
    for event, count in each.composed_events():
      counts[event] += count
  counts.update(selection.event(trial) for trial, selection in tunings)
  events = list(counts.items())
  every_ledger = [*ledgers, *(trial for trial, _ in tunings)]
  claims = [each.participation for each in every_ledger]
  relations = {each.neighboring_relation for each in claims}
  names = _common_accountants(every_ledger)
  if tunings:
    # Only RDP accounts for the choice of the best trial.
    names = [name for name in names if name == "rdp"]
  is_mixture = any(
    isinstance(event, balls_in_bins.BallsInBinsDpEvent) for event, _ in events
  )
  if len(relations) > 1 or not names or is_mixture:
    raise errors.FieldError(
      "participation",
      "have the neighbouring relation of the other runs of privacy_budget, and"
      " an accountant in common with them",
      sorted({f"{p.name}: {p.neighboring_relation.name}" for p in claims}),
      "What a whole run costs by Monte Carlo is not composed with others.",
    )
  if "gaussian" in names:
    names = ["gaussian"]  # It is exact: no upper bound can be smaller.
  (relation,) = relations

  def epsilon_at(delta: float) -> float:
    """Returns epsilon of exactly Gaussian noise at another delta."""
    epsilons = epsilon_lib.epsilons_of(
      events, delta, accountants=names, neighboring_relation=relation
    )
    _, epsilon = epsilon_lib.leading(epsilons)
    return epsilon

  sums, runs = [], 0
  for each in ledgers:
    if (known := arithmetic.known_sum(each)) is not None:
      sums.append(known)
      runs += each.num_runs
  if not sums:
    return epsilon_at(delta)
  return arithmetic.add_to_epsilon(
    epsilon_at, delta, round_sum=_bound_sums(sums), runs=runs
  )


def _bound_sums(sums: Sequence[composition.RoundSum]) -> composition.RoundSum:
  """Returns a round sum whose arithmetic costs no less than that of any run.

  The cost grows with the size d of a sum and with z sqrt(d), so the result has
  the largest of each.

  Args:
    sums: Sums of the runs whose arithmetic has a known cost, at least one.
  """
  size = max(each.num_parameters for each in sums)
  coarsest = max(s.noise_multiplier * math.sqrt(s.num_parameters) for s in sums)
  counts = [s.count_noise for s in sums if s.count_noise is not None]
  return composition.RoundSum(
    1.0, coarsest / math.sqrt(size), size, max(counts, default=None)
  )


def _common_accountants(ledgers: Sequence[ledger_lib.Ledger]) -> list[str]:
  """Names of the accountants that all runs were accounted by.

  Without one, all accountants of their participations count. Monte Carlo never
  counts: it accounts for a single run.

  Args:
    ledgers: Ledgers of all runs, and of a trial of each tuning, at least one.

  Returns:
    Names in the order of the first ledger; empty if there is none.
  """
  own = [each.accountants for each in ledgers]
  every = []
  for each in ledgers:
    claim = each.participation
    every.append(claim.accountants + claim.further_accountants)
  for names in (own, every):
    shared = set(names[0]).intersection(*names[1:]) - {"monte_carlo"}
    if shared:
      return [name for name in names[0] if name in shared]
  return []
