"""Which mechanism suits a population: a table, a recommendation, a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import os
from typing import Any

from etils import epy

from tff_fedemb import progress as progress_lib
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.privacy import mechanism_choice
from tff_fedemb.privacy import planning
from tff_fedemb.privacy import report as report_lib
from tff_fedemb.report import account_output

with epy.lazy_imports():
  from tff_fedemb.plots import privacy_plots

_Family = tuple[str, str]
_Candidates = Sequence[mechanism_choice.Candidate]

# Of the picture.
_EPSILONS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)
# Times the least error.
_NEARLY = 1.1
# Of a row: title and width.
_COLUMNS = (
  *(("mechanism", -19), ("participation", -15), ("copies", 6), ("z", 10)),
  *(("RMSE", 11), ("largest", 11), ("/ least", 8)),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choices:
  """Candidates with the noise for a target epsilon, and the best of them.

  Attributes:
    target_epsilon: At most this is spent by each of them.
    ranked: Best first.
    report: The whole account of the best.
    by_epsilon: The best of every mechanism and participation for `_EPSILONS`,
      for a picture; None without.
    given: How what was left open was decided.
  """

  target_epsilon: float
  ranked: _Candidates
  report: report_lib.PrivacyReport
  by_epsilon: Mapping[_Family, _Candidates] | None
  given: Sequence[str]

  @property
  def best(self) -> mechanism_choice.Candidate:
    """The one with the least error."""
    return self.ranked[0]

  @property
  def leanest(self) -> mechanism_choice.Candidate:
    """Of those nearly as good, the one that needs the least memory."""
    near = [c for c in self.ranked if c.rmse <= _NEARLY * self.best.rmse]
    return min(near, key=lambda candidate: candidate.model_copies)

  @functools.cached_property
  def notes(self) -> list[str]:
    """What the figures mean, and what they rest on."""
    plan = self.best.plan
    claims = {
      c.plan.participation.name: c.plan.participation for c in self.ranked
    }
    notes = [
      "RMSE and largest: noise of the sum of all rounds' means up to a round,"
      " over the rounds, in clip norms for a server learning rate of 1; the"
      f" divisor of a round is {plan.participation.clients_per_round:,}."
      " z: noise multiplier. copies: of the model, that the noise needs beside"
      " it.",
      "All protect one user, each for its own participation: "
      + "; ".join(
        f"{name}: {claim.neighboring_relation_in_words}, Delta ="
        f" {claim.sensitivity_in_clip_norms:g} C"
        for name, claim in claims.items()
      )
      + ".",
    ]
    if any(claim.is_sampled for claim in claims.values()):
      notes.append(
        "Sampling amplifies only where the server draws users in secret, and"
        " has those whom it draws. Where devices come when they can, ask with"
        " --participation=check_ins and the bounds that the server enforces."
      )
    return [*notes, *self.given]

  def to_json(self) -> dict[str, Any]:
    """Returns JSON values by name."""
    values: dict[str, Any] = {
      "target_epsilon": self.target_epsilon,
      "candidates": [candidate.to_json() for candidate in self.ranked],
      "leanest": self.leanest.to_json(),
      "report": self.report.to_json(),
      "notes": self.notes,
    }
    if self.by_epsilon is not None:
      values["by_epsilon"] = [
        {"epsilon": epsilon} | candidate.to_json()
        for candidates in self.by_epsilon.values()
        for epsilon, candidate in zip(_EPSILONS, candidates, strict=True)
      ]
    return report_lib.json_safe(values)

  def to_text(self) -> str:
    """Returns the table and what is recommended, in lines."""
    plan = self.best.plan
    lines = [
      f"noise for epsilon <= {self.target_epsilon:g} at delta ="
      f" {plan.delta:g}, {plan.rounds:,} rounds",
      "",
      _row(title for title, _ in _COLUMNS),
      *(self._row(candidate) for candidate in self.ranked),
      "",
      account_output.wrap(f"least error: {self.reason}"),
      _flags(self.best),
      *self._in_less_memory(),
      "",
      account_output.wrap(self.report.statement),
      "",
      "Notes:",
      *(account_output.wrap(note, "- ", "  ") for note in self.notes),
    ]
    return "\n".join(lines)

  def _row(self, candidate: mechanism_choice.Candidate) -> str:
    plan = candidate.plan
    return _row(
      (
        _describe(candidate),
        plan.participation.name,
        f"{candidate.model_copies:,}",
        f"{plan.noise_multiplier:.5g}",
        f"{candidate.rmse:.4g}",
        f"{candidate.max_error:.4g}",
        f"{candidate.rmse / self.best.rmse:.3f}",
      )
    )

  def _in_less_memory(self) -> list[str]:
    lean = self.leanest
    if lean.model_copies == self.best.model_copies:
      return []
    return [
      account_output.wrap(
        f"nearly, with {lean.model_copies:,} copies of the model beside it"
        f" instead of {self.best.model_copies:,}: {_describe(lean)},"
        f" {lean.plan.participation.name}, {lean.rmse / self.best.rmse:.2f}"
        " times the error"
      ),
      _flags(lean),
    ]

  @property
  def reason(self) -> str:
    """What is recommended, and how much better it is than others."""
    text = f"{_describe(self.best)}, {self.best.plan.participation.name}"
    others = [
      members[0]
      for family, members in mechanism_choice.families(self.ranked).items()
      if family != self.best.family
    ]
    if others:
      other = others[0]
      text += (
        f": {other.rmse / self.best.rmse:.2f} times less error than"
        f" {_describe(other)}, {other.plan.participation.name}"
      )
    return text

  def draw(self, path: str | os.PathLike[str]) -> None:
    """Writes the picture of `by_epsilon` as PNG."""
    assert self.by_epsilon is not None
    by_label = {_label(c[0]): c for c in self.by_epsilon.values()}
    privacy_plots.plot_errors(
      path,
      {
        label: [candidate.rmse for candidate in candidates]
        for label, candidates in by_label.items()
      },
      _EPSILONS,
      sizes_by_label={
        label: [candidate.size or 1 for candidate in candidates]
        for label, candidates in by_label.items()
        if candidates[0].plan.participation.is_sampled
        and candidates[0].size is not None
      },
      target_epsilon=self.target_epsilon,
      delta=self.best.plan.delta,
      caption=self.caption,
    )

  @property
  def _by_accountants(self) -> str:
    """Where epsilon is whose, unless it is exact everywhere."""
    sampled = {
      report_lib.ACCOUNTANT_NAMES[c.plan.accountants[0]]
      for c in self.ranked
      if c.plan.participation.is_sampled
    }
    if not sampled:
      return ""
    names = " or ".join(sorted(sampled))
    return f", by {names} where users are sampled, exact where they are not"

  @property
  def caption(self) -> str:
    """What all candidates have in common."""
    plan, claim = self.best.plan, self.best.plan.participation
    alone = (
      ""
      if claim.users_per_client == 1
      else (f" in virtual clients of {claim.users_per_client:,}")
    )
    sensitivity = claim.sensitivity_in_clip_norms
    delta = "C" if sensitivity == 1 else f"{sensitivity:g} C"
    return (
      f"{claim.num_users:,} users, {claim.cohort_in_words} a round{alone},"
      f" {plan.rounds:,} rounds. Root mean square noise of the sums of all"
      " rounds' means up to a round, over the rounds. At each point every"
      " mechanism has the noise that this epsilon needs for one user:"
      f" Δ = {delta}{self._by_accountants}; each has its best number of buffers"
      " or bands (at most 256)."
    )


def choose(
  participations: Sequence[participation_lib.Participation],
  *,
  mechanism: str | None,
  rounds: int,
  delta: float,
  target_epsilon: float,
  with_picture: bool,
  notes: Sequence[str] = (),
) -> Choices:
  """Tries all that the participations allow.

  Privacy:
    As `mechanism_choice.rank`.

  Args:
    participations: Ways to take part that are possible.
    mechanism: The only one to try; None for all.
    rounds: Number of rounds.
    delta: Of the guarantee.
    target_epsilon: At most this is spent.
    with_picture: Whether other epsilons are needed too.
    notes: How what was left open was decided.

  Raises:
    errors.FieldError: If a value is out of its range, or there is nothing to
      choose from.
  """
  candidates = mechanism_choice.list_candidates(
    participations,
    rounds=rounds,
    delta=delta,
    mechanisms=None if mechanism is None else (mechanism,),
  )
  points = len(mechanism_choice.families(candidates)) * len(_EPSILONS)
  total = len(candidates) + 1 + points * with_picture
  with progress_lib.create_bar(
    "Calibrating", unit="points", total=total
  ) as progress:
    ranked = mechanism_choice.rank(
      candidates, target_epsilon, tell=progress.update
    )
    report = planning.create_report(ranked[0].plan)
    progress.update()
    by_epsilon = None
    if with_picture:
      by_epsilon = mechanism_choice.best_by_epsilon(
        candidates, _EPSILONS, tell=progress.update
      )
  return Choices(
    target_epsilon=target_epsilon,
    ranked=ranked,
    report=report,
    by_epsilon=by_epsilon,
    given=notes,
  )


def _label(candidate: mechanism_choice.Candidate) -> str:
  """What a curve is called."""
  plan = candidate.plan
  return f"{plan.noise_in_words},\n{plan.participation.name}"


def _describe(candidate: mechanism_choice.Candidate) -> str:
  plan = candidate.plan
  if candidate.size is None:
    return plan.noise_in_words
  what = str(plan.mechanism.size_field).removeprefix("num_")
  return f"{plan.noise_in_words}, {candidate.size} {what}"


def _flags(candidate: mechanism_choice.Candidate) -> str:
  """What a program that trains is given."""
  plan, claim = candidate.plan, candidate.plan.participation
  flags = {
    "aggregator": plan.name,
    "participation": claim.name,
    **{name: vars(claim).get(name) for name in ("period", "min_separation")},
    plan.mechanism.size_field: candidate.size,
    "clients_per_round": claim.clients_per_round,
    "users_per_client": claim.users_per_client,
    "rounds": plan.rounds,
    "noise_multiplier": plan.noise_multiplier,
  }
  given = [f"--{name}={x}" for name, x in flags.items() if x is not None]
  text = " ".join(given)
  if claim.max_participations is not None:
    text += (
      f" (deployment: server.max_participations {claim.max_participations:,})"
    )
  return account_output.wrap(text, "  ", "  ")


def _row(cells: Any) -> str:
  """A line of the table."""
  return "".join(
    f"{cell:<{-width}}" if width < 0 else f"{cell:>{width}}"
    for cell, (_, width) in zip(cells, _COLUMNS, strict=True)
  )
