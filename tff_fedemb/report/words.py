"""What a report says in words: the guarantee and its strength, and devices.

The strengths are those of Ponomareva et al., "How to DP-fy ML", 2023: epsilon
up to 1 is strong, up to 10 reasonable, above 10 weak to none.
"""

import dataclasses
import math
import pathlib
from typing import Any

from tff_fedemb.participation import check_ins
from tff_fedemb.plots import deployment_plots
from tff_fedemb.privacy.audit import trade_off
from tff_fedemb.report import run_files

_STRENGTHS = (
  (1.0, "strong", "a strong guarantee"),
  (10.0, "reasonable", "a reasonable guarantee"),
  (math.inf, "weak", "a weak guarantee, or none in practice"),
)
# Above it the share has no more digits to show.
_CERTAIN = 0.9995
# The fates of devices, in words.
_FATES = {
  "reported": "reported",
  "aborted": "were not needed any more once the goal was met",
  "late": "were late",
  "interrupted": "were interrupted",
  "dropped": "dropped out",
}
_MUST = (
  "Who drops out or is late decides who else is counted, so it must not depend"
  " on what images a user has."
)
_EQUAL_WORK = (
  f"{_MUST} By this deployment it does not: on the simulated clock every device"
  " does the same work, or takes the time of the most. Real devices would have"
  " to be made to do so."
)
_ASSUMED = (
  f"{_MUST} Here devices do as much work as their users have images. Equal work"
  " for all, or reports padded to the time of the most, would ensure it"
  " (equal_work)."
)


@dataclasses.dataclass(frozen=True)
class Guarantee:
  """What one run protects.

  Attributes:
    strength: "strong", "reasonable", "weak" or "none".
    verdict: The same in a few words.
    sentences: Two: what holds, and why; the second one tells of secure sums.
    assumptions: What has to be true for it.
  """

  strength: str
  verdict: str
  sentences: tuple[str, str]
  assumptions: tuple[str, ...]


def format_epsilon(epsilon: float) -> str:
  """An epsilon in four digits, without an exponent where it can be."""
  if epsilon == math.inf:
    return "∞"
  if epsilon >= 1e7 or 0 < epsilon < 1e-4:
    return f"{epsilon:.3e}"
  return f"{float(f'{epsilon:.4g}'):,.10g}"


def count(number: float, one: str) -> str:
  """A number and what is counted, for example '1,000 users'."""
  return f"{number:,.6g} {one if number == 1 else one + 's'}"


def guess_share(epsilon: float, delta: float) -> float:
  """How often the best guess between two neighbouring training sets is right.

  Privacy:
    The release is (epsilon, delta)-differentially private, and both training
    sets are equally likely: (e^epsilon + delta) / (e^epsilon + 1).
  """
  if epsilon > 700:
    return 1.0
  return (math.exp(epsilon) + delta) / (math.exp(epsilon) + 1)


def create_guarantee(run: run_files.Run) -> Guarantee:
  """Says what a run protects, by its account.

  Privacy:
    As `account_run.recompute`, whose report this puts in words.
  """
  privacy, user = run.account.report, run.summary["user_meaning"]
  if privacy.epsilon == math.inf:
    first = (
      "Nothing is guaranteed: in at least one round no noise was added, and"
      " the model may give away anything about anyone it was trained on."
    )
    second = (
      f"It was trained for {count(privacy.rounds, 'round')} on the images of"
      f" {count(privacy.num_users, 'user')} (a user: {user})."
      f"{_say_sums(run)}"
    )
    return Guarantee("none", "no guarantee", (first, second), ())
  strength, verdict = next(
    (name, text) for limit, name, text in _STRENGTHS if privacy.epsilon <= limit
  )
  return Guarantee(
    strength,
    f"{verdict} (ε = {format_epsilon(privacy.epsilon)})",
    (_say_what_holds(run), _say_why(run) + _say_sums(run)),
    (
      f"The unit is one user ({user}) with all their images. Whoever counts as"
      " several users is protected less.",
      f"{privacy.sampling}.",
      "The training program and the machine that it ran on did what they say:"
      " whoever ran them saw the images themselves.",
      *(f"Checked for this page: {note}." for note in run.account.notes),
    ),
  )


def _say_sums(run: run_files.Run) -> str:
  """A sentence of the secure sums that a run had, if any."""
  how = run.summary["secure_sums"]
  if not how:
    return ""
  return (
    f" Its sums are secure sums, {how}: a server would have seen no single"
    " update, this program computed with all of them; ε does not rest on it."
  )


def _say_what_holds(run: run_files.Run) -> str:
  privacy = run.account.report
  share = guess_share(privacy.epsilon, privacy.delta)
  often = f"is right at most {math.ceil(share * 1000) / 10:.1f} % of the time"
  if share > _CERTAIN:
    often = "may be right practically every time, for all that is proven"
  return (
    f"Whoever sees this model, or its versions after each of the"
    f" {count(privacy.rounds, 'round')} of training, and guesses which of two"
    " equally likely sets of users it was trained on, where the two differ in"
    f" one single user ({privacy.neighboring_relation}), {often},"
    " whatever else they know (50 % is blind guessing): (ε, δ) ="
    f" ({format_epsilon(privacy.epsilon)}, {privacy.delta:.3g})."
    f"{_say_rates(run)}"
  )


def _say_rates(run: run_files.Run) -> str:
  """A sentence of how many members an attack can find, if that is not all."""
  rates = trade_off.FALSE_POSITIVE_RATES
  allowed = trade_off.allowed_rates(
    run.account.ledger, run.account.report.epsilon, rates
  )
  if min(allowed) > _CERTAIN:
    return ""
  told = " and ".join(
    f"{math.ceil(1000 * most) / 10:.3g} % of them at {100 * rate:g} %"
    for rate, most in zip(rates, allowed, strict=True)
  )
  return (
    " An attack that looks for users who took part in training finds at most"
    f" {told} false alarms."
  )


def _say_why(run: run_files.Run) -> str:
  privacy, clip_norm = run.account.report, run.settings.get("clip_norm")
  clip = "a fixed length" if clip_norm is None else f"length {clip_norm:g}"
  who = "a user contributes"
  if privacy.users_per_client > 1:
    who = f"a group of {privacy.users_per_client:,} users contributes together"
  sensitivity = privacy.sensitivity_in_clip_norms
  times = "that" if sensitivity == 1 else f"{sensitivity:g} times that"
  noise = "Gaussian noise"
  if privacy.strategy_sensitivity is not None:
    noise += ", correlated from round to round,"
  return (
    f"It holds because what {who} to a round was cut to {clip}, so that one"
    f" user changes a round's sum by at most {times}, and {noise} of"
    f" {privacy.noise_multiplier:g} times the length was added to each sum;"
    f" each round has {run.account.ledger.participation.cohort_in_words} of the"
    f" {privacy.num_users:,} users; ε was worked out anew for this page from"
    " the run's ledger, which neither its settings nor its record of who took"
    " part refute."
  )


def describe_devices(run: run_files.Run) -> dict[str, Any] | None:
  """Describes what came of the devices of a run.

  Returns:
    `None` without any. Else by name:

    name: Name of the deployment.
    found: What came of it, as summary.json has it.
    simulated: How long the run took on the simulated clock, in words.
    num_rounds: Rounds, abandoned ones included.
    num_users: Size of the population.
    fates: Shares of the selected devices by what became of them.
    bounds: Rows of a name, what the server enforced and what was measured.
    is_assumed: Whether what epsilon needs of devices that drop out is assumed,
      not enforced.
    assumption: What that is.
  """
  claim = run.account.ledger.participation
  if run.deployment is None or not isinstance(claim, check_ins.CheckIns):
    return None
  found = run.summary["deployment"]
  measured = found["measured"]
  separation = measured["min_separation"]
  most = claim.participations(found["rounds_released"])
  return {
    "name": pathlib.PurePath(str(run.settings["deployment"])).name,
    "found": found,
    "simulated": deployment_plots.say_time(24 * found["days"]),
    "num_rounds": len(run.deployment),
    "num_users": claim.num_users,
    "fates": {
      text: found[fate] / max(found["selected"], 1)
      for fate, text in _FATES.items()
    },
    "bounds": [
      (
        "rounds from one participation of a user to the next",
        f"at least {claim.min_separation:,}",
        "nobody came twice" if separation is None else f"{separation:,}",
      ),
      (
        "rounds of a user",
        f"at most {most:,}",
        f"{measured['max_participations']:,}",
      ),
    ],
    "is_assumed": not claim.equal_work,
    "assumption": _EQUAL_WORK if claim.equal_work else _ASSUMED,
  }
