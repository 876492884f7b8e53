"""Privacy cost of choosing the best of a random number of trials.

Papernot and Steinke 2022, "Hyperparameter Tuning with Renyi Differential
Privacy". Trying hyperparameters a fixed number of times and keeping the best
may cost as much as releasing every trial. If the number of trials is itself
drawn at random, and neither it nor any trial but the best is ever shown, the
whole costs a small multiple of one trial, which grows with the logarithm of the
expected number. The bound is `dp_accounting`'s.
"""

import dataclasses
import functools
import math
from typing import Any

import dp_accounting
import numpy as np
from scipy import optimize
from scipy import stats

from tff_fedemb import config
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import epsilon as epsilon_lib
from tff_fedemb.accounting import report as report_lib

ASSUMPTIONS = (
  "the number of trials was drawn once, from this distribution, independently"
  " of data and trials",
  "only the best trial is released: no other trial, nor the number of trials,"
  " the time that the tuning took, or its seed",
  "the selection looks at nothing but each trial's private model and data of"
  " users who are not protected",
  "trials are independent runs of one mechanism at the same cost, with"
  " hyperparameters from one distribution; a trial that diverges or is refused"
  " counts as the worst",
  "the tuning is run once: another one on the same users adds its own cost",
)


@dataclasses.dataclass(frozen=True)
class RepeatAndSelect(config.Config):
  """A random number of trials, of which the best is released.

  Privacy:
    Unit, neighbouring relation: those of a trial.
    Sensitivity: that of a trial; the choice adds none of its own.
    DpEvent: `RepeatAndSelectDpEvent` of a trial's events.

  The number of trials K follows a truncated negative binomial distribution
  (section 2 of the paper), of success probability g:

    P[K = k] = (1 - g)^k / (g^-shape - 1) prod_{l < k} (l + shape) / (l + 1)

  for k >= 1: geometric for shape 1; logarithmic for shape 0, in the limit; and
  a single trial if the mean is 1. For shape infinity, K is Poisson and may be
  0: then no trial is run and nothing is released. Do not draw once more, which
  would be another distribution than the one that is accounted for. The larger
  the shape, the less K varies, and the more it costs (except that Poisson may
  cost less where epsilon is small).

  Attributes:
    mean: Expected number of trials, in [1, 1e6].
    shape: At least 0; may be infinite.

  Raises:
    errors.FieldError: If a value is out of its range.
  """

  mean: float = config.field(minimum=1, maximum=1e6)
  shape: float = config.field(1.0, minimum=0, maximum=math.inf)

  @property
  def distribution(self) -> str:
    """Name of the distribution of the number of trials, for reports."""
    names = {0.0: "logarithmic", 1.0: "geometric", math.inf: "Poisson"}
    return names.get(self.shape, "truncated negative binomial")

  @functools.cached_property
  def _negative_log_success(self) -> float:
    """The number t = -log g at which the distribution has its mean.

    It is 0 for a mean of 1, where there is always one trial.
    """
    if self.mean == 1:
      return 0.0

    def excess(t: float) -> float:
      """The mean at t, less the mean that is sought."""
      if t == 0:
        return 1 - self.mean
      share = t
      if self.shape:
        share = -math.expm1(-self.shape * t) / self.shape
      return math.expm1(t) / share - self.mean

    # The mean is at least (e^t - 1) / t, which is at least e^(t / 2).
    high = 2 * math.log(self.mean)
    return optimize.brentq(excess, 0.0, high, xtol=1e-15 * high)

  def draw_num_trials(self, generator: np.random.Generator) -> int:
    """Draws the number of trials from the distribution accounted for.

    Draw once. A second draw, or a limit on the number, would be another
    distribution, with another cost.

    Args:
      generator: Its seed must be unknown to everybody who sees the release.

    Returns:
      At least 1, except for Poisson, where it may be 0.
    """
    if self.shape == math.inf:
      return int(generator.poisson(self.mean))
    t = self._negative_log_success
    if t == 0:
      return 1
    if self.shape == 0:
      return int(generator.logseries(-math.expm1(-t)))
    untruncated = stats.nbinom(self.shape, math.exp(-t))
    # The upper tail stays exact where nearly all of the mass is at 0.
    tail = (1 - generator.random()) * -math.expm1(-self.shape * t)
    return max(1, int(untruncated.isf(tail)))

  def event(
    self,
    trial: composition.Account,
    **reading: Any,
  ) -> dp_accounting.DpEvent:
    """Returns the event of the whole tuning.

    Privacy:
      As the class.

    Args:
      trial: The rounds of one trial, the same in all.
      **reading: `sensitivity_in_clip_norms`, for another reading of a trial.

    Returns:
      `RepeatAndSelectDpEvent` of the composition of the trial's events.

    Raises:
      ValueError: As `composition.composed_events`.
    """
    events = []
    for event, count in trial.composed_events(**reading):
      events.append(dp_accounting.SelfComposedDpEvent(event, count))
    of_trial = dp_accounting.ComposedDpEvent(tuple(events))
    return dp_accounting.dp_event.RepeatAndSelectDpEvent(
      of_trial, self.mean, self.shape
    )

  def epsilon(self, trial: composition.Account, **reading: Any) -> float:
    """Returns the epsilon of the whole tuning, by RDP.

    Privacy:
      As the class, with trials as in `composition.composed_events`.

    Args:
      trial: The rounds of one trial, the same in all; their delta is that of
        the result.
      **reading: The sensitivity, as in `composition.composed_events`, for
        another reading.

    Returns:
      Epsilon, infinity if a round is not private.

    Raises:
      ValueError: As `epsilon.epsilon_of`.
    """
    return epsilon_lib.epsilon_of(
      [(self.event(trial, **reading), 1)],
      trial.delta,
      accountant="rdp",
      neighboring_relation=trial.participation.neighboring_relation,
    )


_RELEASED = "the best trial's hyperparameters and its models after each round"
# A tuning's report copies these from a trial's.
_OF_TRIAL = (
  "delta",
  "unit",
  "neighboring_relation",
  "sampling",
  "accountant",
  "sensitivity_in_clip_norms",
  "num_users",
  "rounds",
)


def create_report(
  selection: RepeatAndSelect,
  account: composition.Account,
  *,
  chosen_by_others: bool,
  selection_users: int = 0,
) -> dict[str, Any]:
  """Returns what a tuning protects, its cost and its assumptions.

  Privacy:
    As `RepeatAndSelect.epsilon`, for the users who train. A choice by their
    images has no noise and protects nobody: epsilon is infinite.

  Args:
    selection: How the number of trials was drawn.
    account: The rounds of one trial, the same in all; asks RDP.
    chosen_by_others: Whether the images that the best trial was chosen by are
      all of users who do not train.
    selection_users: Number of users who were left out of training for that.

  Returns:
    Values that JSON can hold, infinity as "inf". Names of `PrivacyReport` mean
    the same here, for the best trial; `rounds` are a trial's. `assumptions`
    must hold beside those of a trial. `epsilon_if_chosen_by_others` is None
    where it equals `epsilon`.

  Raises:
    ValueError: As `RepeatAndSelect.epsilon`.
  """
  trial = report_lib.create_report(account)
  epsilon = selection.epsilon(account)
  virtual = trial.unit_is_virtual_client_epsilon
  if virtual is not None:
    virtual = selection.epsilon(account, sensitivity_in_clip_norms=1.0)
  claim = account.participation
  warnings = report_lib.warnings_of_all(claim, account.delta, epsilon)
  others = "the users"
  if selection_users:
    others = f"the {selection_users:,} users who do not train, and"
  statement = _statement(selection, account, trial, epsilon, others)
  if_chosen_by_others = None
  if not chosen_by_others:
    statement = (
      "Epsilon is infinite: the best trial was chosen, without noise, by images"
      " that may be of users who train. If they were of others, it would be"
      f" {epsilon:.4g}: {statement}"
    )
    if_chosen_by_others = epsilon
    epsilon = math.inf
    if virtual is not None:
      virtual = math.inf
  return report_lib.json_safe(
    {name: getattr(trial, name) for name in _OF_TRIAL}
    | {
      "epsilon": epsilon,
      "epsilon_if_chosen_by_others": if_chosen_by_others,
      "epsilon_of_one_trial": trial.epsilon,
      "unit_is_virtual_client_epsilon": virtual,
      "selection_users": selection_users,
      "distribution": selection.distribution,
      "mean_trials": selection.mean,
      "shape": selection.shape,
      "released": _RELEASED,
      "assumptions": ASSUMPTIONS,
      "statement": statement,
      "warnings": list(warnings),
    }
  )


def _statement(
  selection: RepeatAndSelect,
  account: composition.Account,
  trial: report_lib.PrivacyReport,
  epsilon: float,
  others: str,
) -> str:
  """The guarantee of a tuning that was chosen by others' images.

  Args:
    selection: How the number of trials was drawn.
    account: The rounds of one trial.
    trial: Report of one trial.
    epsilon: Cost of the whole tuning.
    others: The users whose images the best trial was chosen by, in words.
  """
  return (
    f"(epsilon, delta) = ({epsilon:.4g}, {account.delta:.4g}) for the unit "
    f'"{trial.unit}" under the relation "{trial.neighboring_relation}", by '
    f"RDP, for {_RELEASED}. It covers the {trial.num_users:,} users who "
    f"train, and not {others} whose images the best was chosen by. The number"
    f" of trials is drawn from a {selection.distribution} distribution of mean "
    f"{selection.mean:g} (shape {selection.shape:g}; Papernot and Steinke "
    f"2022); a single trial costs {trial.epsilon:.4g}. {trial.sampling}. The "
    f"accountant is given {selection.event(account)}. This holds if"
    f" {'; '.join(ASSUMPTIONS)}."
  )
