"""How much noise, how many users, or how large a cohort for a target epsilon.

Both readings of the sensitivity are solved for; the user-level one leads. The
target holds for what is found: it is the whole account's epsilon.
"""

import dataclasses
from typing import Any

import dp_accounting

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.privacy import calibration_search
from tff_fedemb.privacy import epsilon as epsilon_lib
from tff_fedemb.privacy import planning
from tff_fedemb.privacy import report as report_lib

SOLVE_FOR = ("noise_multiplier", "num_users", "users_per_round")

# Above this epsilon nothing is protected.
MAX_TARGET_EPSILON = 100.0


@dataclasses.dataclass(frozen=True)
class Solution:
  """The answer under one assumption about the sensitivity.

  Privacy:
    Unit: `protects`.
    Neighbouring relation, DpEvent: those of `plan`.
    Sensitivity: `sensitivity_in_clip_norms` clip norms.

  Attributes:
    name: 'user-level' or 'authors'.
    protects: The protected unit, in words.
    sensitivity_in_clip_norms: Assumed change of a round's sum.
    value: The smallest value of what was solved for.
    epsilon: What it costs; at most the target.
    plan: The run with that value.
  """

  name: str
  protects: str
  sensitivity_in_clip_norms: float
  value: float
  epsilon: float
  plan: planning.Plan


@dataclasses.dataclass(frozen=True)
class Calibration:
  """The smallest value for which a target epsilon holds.

  Privacy:
    As `Solution`, for each reading.

  Attributes:
    solve_for: What was searched for; one of `SOLVE_FOR`.
    target_epsilon: At most this is spent.
    user_level: The reading that the participation supports; it leads.
    authors: The reading in which a user moves a sum by one clip norm.
    report: The whole account of the user-level solution.
    assumptions: What was held fixed, and how exact the search is.
  """

  solve_for: str
  target_epsilon: float
  user_level: Solution
  authors: Solution
  report: report_lib.PrivacyReport
  assumptions: tuple[str, ...]

  def to_json(self) -> dict[str, Any]:
    """Returns a dictionary that JSON can hold."""
    values = {**vars(self), "report": self.report.to_json()}
    for name in ("user_level", "authors"):
      solution = values[name]
      values[name] = {**vars(solution), "plan": solution.plan.to_json()}
    return report_lib.json_safe(values)


def calibrate(
  plan: planning.Plan, *, target_epsilon: float, solve_for: str
) -> Calibration:
  """Returns the smallest value of a quantity for which a target holds.

  Privacy:
    As `Solution`, for each reading.

  Args:
    plan: All but the quantity that is solved for, of which it has a first
      guess; asks one accountant. Without sampling, users take part in whole
      passes where the number of users or the cohort changes.
    target_epsilon: In (0, `MAX_TARGET_EPSILON`]; by PLD at most
      `epsilon.PLD_EPSILON_LIMIT`.
    solve_for: 'noise_multiplier'; 'num_users' at the plan's cohort and noise;
      or 'users_per_round', in whole virtual clients, at the plan's ratio of
      noise to cohort, so that the noise on the mean stays what it is.

  Raises:
    errors.FieldError: If a value is out of its range, or the target out of
      reach.
  """
  checks.check_choice("solve_for", solve_for, SOLVE_FOR)
  if len(plan.accountants) != 1:
    raise errors.FieldError(
      "accountants", "be one for a target to hold by", plan.accountants
    )
  limit = MAX_TARGET_EPSILON
  if plan.accountants == ("pld",):
    limit = epsilon_lib.PLD_EPSILON_LIMIT
  target_epsilon = checks.check_number(
    "target_epsilon", target_epsilon, above=0, maximum=limit
  )
  if solve_for != "noise_multiplier" and not plan.noise_multiplier:
    raise errors.FieldError(
      "noise_multiplier", f"be positive to solve for {solve_for}", 0
    )

  def solve(name: str, protects: str, sensitivity: float) -> Solution:
    try:
      value = calibration_search.Search(
        plan, solve_for, target_epsilon, sensitivity
      ).solve()
      solved = calibration_search.with_value(plan, solve_for, value)
      (epsilon,) = epsilon_lib.epsilon_by_accountant(
        [(solved.event, solved.rounds)],
        solved.participation,
        solved.delta,
        accountants=solved.accountants,
        sensitivity_in_clip_norms=sensitivity,
      ).values()
    except epsilon_lib.RoundingError as error:
      raise errors.FieldError(
        "target_epsilon",
        "be larger for the arithmetic of the rdp accountant",
        repr(target_epsilon),
      ) from error
    return Solution(name, protects, sensitivity, value, epsilon, solved)

  user_level, authors = epsilon_lib.in_both_readings(plan.participation, solve)
  solved = user_level.plan
  return Calibration(
    solve_for=solve_for,
    target_epsilon=target_epsilon,
    user_level=user_level,
    authors=authors,
    report=report_lib.create_report(
      [(solved.event, solved.rounds)],
      solved.participation,
      solved.delta,
      accountants=solved.accountants,
    ),
    assumptions=_assumptions(solved, solve_for),
  )


def _assumptions(plan: planning.Plan, solve_for: str) -> tuple[str, ...]:
  words = {
    "noise_multiplier": f"Rounded up to {calibration_search.DIGITS} digits.",
    "num_users": (
      "The users of a round and the noise stay the same; delta too, which "
      "is to be below 1 / num_users."
    ),
    "users_per_round": (
      "The noise multiplier grows with the users of a round, so that the "
      "noise on the mean stays the same; the cohort is one of whole "
      "virtual clients."
    ),
  }
  assumptions = [words[solve_for]]
  claim = plan.participation
  if solve_for != "noise_multiplier" and not claim.is_sampled:
    assumptions.append(
      "Users take part in whole passes: min_separation is num_users / "
      "users_per_round, rounded up."
    )
    if plan.mechanism in ("blt", "banded"):
      assumptions.append(
        "The strategy is optimised anew for every schedule; a smaller value "
        "may do in between, as the cost of such strategies is not monotone."
      )
  if (
    solve_for == "users_per_round"
    and claim.neighboring_relation
    is dp_accounting.NeighboringRelation.REPLACE_ONE
    and claim.users_per_round == claim.num_users
  ):
    assumptions.append(
      "All users are in every round: the bound for drawing nearly all of "
      "them exceeds the cost of all, so a smaller cohort might do that "
      "cannot be shown to."
    )
  if plan.accountants == ("pld",):
    assumptions.append(
      f"The smallest value to {calibration_search.PLD_TOLERANCE:.1%}, as PLD"
      " takes seconds."
    )
  return tuple(assumptions)
