"""The guarantee of a run and its cost, in numbers and in words.

You can check a report by hand: it names the protected unit, the neighbouring
relation, the sampler, the sensitivity and the events that the accountant was
given.
"""

from collections.abc import Iterator, Mapping
import dataclasses
import importlib.metadata
import math
from typing import Any

from tff_fedemb.accounting import arithmetic
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import epsilon as epsilon_lib
from tff_fedemb.accounting import monte_carlo
from tff_fedemb.accounting import random_allocation
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.participation import participation_check

UNIT = "user"
_RELEASED = "every round's model (all iterates)"
_NOT_COVERED = (
  "every file of a run outside of its release/",
  "training metrics on the users of a round, which have no noise",
  "the trace and participation_checked: amplification rests on their secrecy",
  "evaluation without noise, in some tasks (EMNIST) on images of the users",
  "hyperparameter tuning: other runs on the same users add their own cost",
  "settings that follow from the number of users and from whether each has one"
  " class alone",
  "pseudo-randomness: whoever reads the key of the sampling, the trace or a"
  " checkpoint with the key of the noise sees through them",
  "single-precision arithmetic in correlated noise",
)

# A population of fewer than ten users is too small for any useful delta.
_LARGEST_DELTA = 0.1

# Short names, for pictures.
ACCOUNTANT_NAMES = {
  "rdp": "RDP",
  "pld": "PLD",
  "gaussian": "exact",
  "monte_carlo": "Monte Carlo",
  "allocation": "PLD",
}
_ACCOUNTANT_IN_WORDS = {
  "rdp": "RDP",
  "pld": "PLD",
  "gaussian": "the exact privacy loss of the Gaussian mechanism",
  "monte_carlo": (
    "Monte-Carlo bounds on the privacy loss (which fail with a probability of"
    f" {monte_carlo.FAILURE_SHARE:g} delta, a part of delta)"
  ),
  "allocation": "a bracket of the privacy loss of random allocation",
}
CHECKED = "The trace of the run does not refute this."
_UNCHECKED = "No trace of a run was checked for this."


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyReport:
  """The unit that a run protects, its cost and its assumptions.

  Privacy:
    Unit: `unit`.
    Neighbouring relation: `neighboring_relation`.
    Sensitivity: `sensitivity_in_clip_norms` clip norms.
    DpEvent: spelled out in `statement`.

  Attributes:
    epsilon: The guarantee; infinity if a round was not private. Sampling
      amplifies it only if `amplification` says so.
    delta: At which epsilon holds.
    unit: 'user'.
    neighboring_relation: The participation's relation, in words.
    sampling: The sampler that was run, in words.
    accountant: Name of the accountant with the smallest valid epsilon.
    epsilon_by_accountant: Epsilon of exactly Gaussian noise by each accountant
      that was run.
    arithmetic_epsilon: Part of `epsilon` for the rounding of the noise
      (`arithmetic.add_to_epsilon`); None where no bound is known: for
      correlated noise, and for a plan without a number of parameters.
    sensitivity_in_clip_norms: Change of a round's sum for one user.
    unit_is_virtual_client_epsilon: Epsilon if the sum changed by one clip norm
      only, for comparison: see `epsilon.VIRTUAL_CLIENT_UNIT`. Infinity if a
      round was not private; None where this is `epsilon` itself.
    rounds: Number of rounds.
    noise_multiplier: Smallest of all rounds, before division by the
      sensitivity; 0 if a round was not private, None without rounds. A
      round that ran n times counts with 1 / sqrt(n) of its own.
    num_users: Size of the population.
    users_per_round: (Expected) users in a round.
    users_per_client: Users per virtual client.
    zcdp: Rho of zero-concentrated DP; None where sampling amplifies.
    max_participations: Rounds that one user may have been in.
    amplification: Whether `epsilon` is amplified by sampling, and why.
    epsilon_with_secret_sampling: What `epsilon` would be if nobody knew who was
      drawn when; None where it rests on that, or nothing was drawn.
    strategy_sensitivity: Sensitivity over the run of correlated noise's
      strategy matrix, in rounds' sensitivities, where sampling amplifies for
      one round that a user is in; None for independent noise.
    participation_checked: Finding in the trace of the run, which does not
      refute the claim; None if there was no trace.
    released: Results that you may publish.
    not_covered: Results that the guarantee does not cover.
    statement: The guarantee in words that you can check by hand.
    warnings: Findings that deserve a second look.
  """

  epsilon: float
  delta: float
  unit: str = UNIT
  neighboring_relation: str
  sampling: str
  accountant: str
  epsilon_by_accountant: Mapping[str, float]
  arithmetic_epsilon: float | None
  sensitivity_in_clip_norms: float
  unit_is_virtual_client_epsilon: float | None
  rounds: int
  noise_multiplier: float | None
  num_users: int
  users_per_round: float
  users_per_client: int
  zcdp: float | None
  max_participations: int
  amplification: str
  epsilon_with_secret_sampling: float | None
  strategy_sensitivity: float | None
  participation_checked: str | None
  released: str = _RELEASED
  not_covered: tuple[str, ...] = _NOT_COVERED
  statement: str = ""
  warnings: tuple[str, ...]

  def to_json(self) -> dict[str, Any]:
    """Returns the attributes as JSON values by name, infinity as "inf".

    Tuples become lists.
    """
    return json_safe(dataclasses.asdict(self))


# A report copies these from the participation.
_OF_PARTICIPATION = (
  "sampling",
  "amplification",
  "sensitivity_in_clip_norms",
  "num_users",
  "users_per_round",
  "users_per_client",
)


def create_report(
  account: composition.Account,
  *,
  observed: participation_check.ObservedParticipation | None = None,
) -> PrivacyReport:
  """Returns the whole account of a run.

  It takes seconds if PLD or Monte Carlo is among the accountants, and asks
  again for each reading that it compares.

  Privacy:
    As `composition.composed_events`.

  Args:
    account: The rounds, the accountants to ask, and delta.
    observed: Finding in the trace of the run, already checked; None if there is
      no trace.

  Returns:
    The report, with its statement and its warnings.

  Raises:
    ValueError: As `epsilon.epsilon_by_accountant`.
  """
  claim = account.participation
  whole = arithmetic.whole_epsilon(account)
  virtual = None
  if claim.sensitivity_in_clip_norms != 1:
    _, virtual = epsilon_lib.leading(
      epsilon_lib.epsilon_by_accountant(account, sensitivity_in_clip_norms=1.0)
    )
  multipliers = [float(noise.multiplier) for noise in account.noises]
  report = PrivacyReport(
    epsilon=whole.epsilon,
    delta=account.delta,
    neighboring_relation=claim.neighboring_relation_in_words,
    accountant=whole.accountant,
    epsilon_by_accountant=whole.by_accountant,
    arithmetic_epsilon=whole.added,
    unit_is_virtual_client_epsilon=virtual,
    rounds=account.rounds,
    noise_multiplier=min(multipliers, default=None),
    zcdp=epsilon_lib.zcdp(account),
    max_participations=claim.participations(account.rounds),
    epsilon_with_secret_sampling=epsilon_lib.with_secret_schedule(account),
    strategy_sensitivity=account.strategy_sensitivity,
    participation_checked=None if observed is None else observed.in_words,
    warnings=(
      *warnings_of_all(claim, account.delta, whole.epsilon),
      *_warnings_of_run(account, whole),
    ),
    **{name: getattr(claim, name) for name in _OF_PARTICIPATION},
  )
  mechanism = _mechanism_in_words(report, account)
  return dataclasses.replace(
    report, statement=_statement(report) + mechanism + _comparisons(report)
  )


def _warnings_of_run(
  account: composition.Account,
  whole: arithmetic.WholeEpsilon,
) -> Iterator[str]:
  """Yields warnings about the accounting of a run and about its rounds.

  They say why an accountant was not run or does not lead, which rounds ran more
  than once, and what epsilon leaves out.

  Args:
    account: The rounds, and the accountants that were asked.
    whole: Their cost.

  Yields:
    Sentences without their full stop; for a run without rounds, the last says
    so.
  """
  asked = set(epsilon_lib.SUMMING).intersection(account.accountants)
  rdp = whole.by_accountant.get("rdp")
  limit = epsilon_lib.PLD_EPSILON_LIMIT
  if rdp is not None and not asked.issubset(whole.by_accountant):
    if rdp > limit and "pld" in asked:
      yield f"pld not run: rdp epsilon exceeds {limit:g}"
    else:
      yield (
        f"delta {account.delta:g} is no more than rounding may add to a sum of"
        " probabilities: epsilon is rdp's, which is larger"
      )
  further = account.participation.further_accountants
  if "pld" in further and "pld" not in asked:
    yield (
      f"rdp's epsilon of {account.participation.name} is loose: pld has a"
      " tighter one, and poisson, where users are clients of their own, costs"
      " about half or less"
    )
  by_runs = account.rounds_by_runs
  by_runs.pop(1, None)
  if by_runs:
    often = [f"{n:,} ran {times} times" for times, n in by_runs.items()]
    yield (
      f"{sum(by_runs.values()):,} of {account.rounds:,} rounds ran again, with"
      " other noise, after a program was killed or a checkpoint was lost"
      f" ({', '.join(often)}): every time is accounted for"
    )
  if not account.rounds:
    yield "no round was recorded"
    return
  delta = account.delta
  if not whole.epsilon:
    yield (
      f"delta {delta:g} alone covers all that one user changes: epsilon is 0,"
      " and a smaller delta says more"
    )
  if all(noise.multiplier for noise in account.noises):
    round_sum = account.round_sum
    yield from arithmetic.warnings_of_end(
      arithmetic.most_moved(account),
      account.num_runs,
      delta,
      size=round_sum.num_parameters if round_sum else 1,
    )


def _statement(report: PrivacyReport) -> str:
  """The guarantee, how users are sampled, and what a round does.

  It is the first part of a report's statement, and ends with a space.
  """
  others = ""
  for name, epsilon in report.epsilon_by_accountant.items():
    if name != report.accountant:
      others += f" ({name}: {epsilon:.4g})"
  return (
    f"(epsilon, delta) = ({report.epsilon:.4g}, {report.delta:.4g}) for the "
    f'unit "{UNIT}" under the relation "{report.neighboring_relation}", by '
    f"{_ACCOUNTANT_IN_WORDS[report.accountant]}{others} with dp_accounting "
    f"{importlib.metadata.version('dp-accounting')}, for {report.rounds:,} "
    f"rounds of which {_RELEASED} may be released. {report.sampling}. "
    f"{_UNCHECKED if report.participation_checked is None else CHECKED} "
    "Every virtual client's update is clipped to L2 norm C, the clipped "
    "updates are summed, and Gaussian noise is added to the sum, which is "
    "then divided by a constant; z is the noise multiplier. "
  )


def _mechanism_in_words(
  report: PrivacyReport,
  account: composition.Account,
) -> str:
  """How the noise was made, what one user changes, which events were given.

  At most three kinds of events are listed. For random allocation the text ends
  with the lower end of the bracket.

  Args:
    report: The report so far, with its figures.
    account: The rounds, whose events are spelled out.
  """
  events = account.composed_events()
  listed = " + ".join(f"{count} x {event}" for event, count in events[:3])
  if len(events) > 3:
    listed += f" + {len(events) - 3} more"
  claim = account.participation
  strategy, of_strategy = account.strategy, report.strategy_sensitivity
  sensitivity = f"{report.sensitivity_in_clip_norms:g}"
  rows = "The noise is fresh in every round"
  given = f"z / {sensitivity}"
  how = "each of which costs"
  if claim.is_amplified:
    how = "each of them amplified by the sampling"
  if strategy is not None:
    rows = (
      "The noise of all rounds is S^-1 Z, S being the"
      f" {strategy.name} strategy matrix and the rows of Z"
      " independent"
    )
    given = f"z / ({sensitivity} x {of_strategy:.6g})"
    how = f"by which S times the sums changes at most {of_strategy:.6g} times"
    if claim.is_amplified:
      how = f"no two of which S mixes: {how}, amplified by the sampling"
  if claim.is_drawn_once:
    how = (
      "which were drawn together, in secret: the whole run is a mixture over"
      " all ways to draw them"
    )
    given = f"z / {sensitivity}"
  text = (
    f"{rows}, of standard deviation z x C. One user changes the sum of a round"
    f" by at most {sensitivity} C, and is in at most"
    f" {report.max_participations:,} rounds, {how}. The accountant is given"
    f" {given}: {listed or 'no event'}."
  )
  if report.accountant == "allocation" and 0.0 < report.epsilon < math.inf:
    low = random_allocation.bound_epsilon(
      tuple(events), account.delta, is_upper=False
    )
    text += f" No epsilon below {low:.4g} is true of them."
  return text


def _comparisons(report: PrivacyReport) -> str:
  """The part of epsilon for arithmetic, and other readings of it.

  Each sentence is left out where its figure is None.
  """
  text = ""
  if report.arithmetic_epsilon is not None:
    text += (
      f" Epsilon includes {report.arithmetic_epsilon:.2g} by which the computed"
      " noise may differ from a true Gaussian."
    )
  if report.epsilon_with_secret_sampling is not None:
    text += (
      " For comparison only, if nobody could know who was drawn when, it would "
      f"be {report.epsilon_with_secret_sampling:.4g}, amplified by sampling."
    )
  if report.unit_is_virtual_client_epsilon is not None:
    text += (
      " For comparison only, counting a change of one clip norm instead, the "
      f"same accounting prints {report.unit_is_virtual_client_epsilon:.4g}; "
      f"that reading {epsilon_lib.VIRTUAL_CLIENT_UNIT}."
    )
  return text


def warnings_of_all(
  participation: participation_lib.Participation,
  delta: float,
  epsilon: float,
) -> Iterator[str]:
  """Yields warnings that apply to a run, a tuning and an extrapolation.

  Args:
    participation: Who takes part.
    delta: In (0, 1).
    epsilon: Epsilon at this delta; may be infinite.

  Yields:
    Sentences without their full stop: on a delta that is too large, on rounds
    without noise, and on a schedule that is taken to be known.
  """
  yield from warnings_of_delta(delta, participation.num_slots)
  if epsilon == math.inf:
    yield "a round added no noise: nothing is protected"
  elif participation != participation.with_secret_schedule():
    yield (
      "who is drawn when is taken to be known: epsilon is that of the rounds a "
      "user is in, and sampling amplifies nothing"
    )


def warnings_of_delta(delta: float, num_users: int) -> Iterator[str]:
  """Yields a warning if delta is too large for the population.

  With probability delta nothing is promised. At 1 / N, a mechanism that
  publishes the data of one user at random would meet the guarantee.

  Args:
    delta: In (0, 1).
    num_users: Size of the population.

  Yields:
    At most one sentence: if delta is not below 1 / `num_users`, or if it is
    below that and yet at least 0.1, which takes fewer than ten users.
  """
  if delta >= 1 / num_users:
    yield f"delta {delta:g} is not below 1 / num_users = {1 / num_users:g}"
  elif delta >= _LARGEST_DELTA:
    yield (
      f"{num_users:,} users are too few to hide one: with a probability of"
      f" delta = {delta:g} epsilon says nothing"
    )


def json_safe(value: Any) -> Any:
  """Returns a value that JSON can hold.

  JSON has no infinity. Other values, NaN among them, stay as they are.

  Args:
    value: Nested mappings, lists and tuples.

  Returns:
    The same with infinity as "inf" or "-inf", and tuples as lists.
  """
  if isinstance(value, Mapping):
    return {key: json_safe(item) for key, item in value.items()}
  if isinstance(value, list | tuple):
    return [json_safe(item) for item in value]
  if isinstance(value, float) and math.isinf(value):
    return "inf" if value > 0 else "-inf"
  return value
