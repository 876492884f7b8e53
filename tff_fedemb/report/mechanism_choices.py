"""The mechanism for a population: a table, a recommendation, a picture."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import functools
import os
from typing import Any

from etils import epy

from tff_fedemb import progress as progress_lib
from tff_fedemb.privacy import mechanism_choice
from tff_fedemb.privacy import planning
from tff_fedemb.privacy import report as report_lib
from tff_fedemb.report import templates

with epy.lazy_imports():
  from tff_fedemb.plots import figures
  from tff_fedemb.plots import privacy_plots

_Plans = Sequence[planning.Plan]

# The picture shows these epsilons.
_EPSILONS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)
# Mechanisms within this factor of the least error are nearly as good.
_NEARLY = 1.1


@dataclasses.dataclass(frozen=True)
class Choices:
  """Plans with the noise for a target epsilon, and the best of them.

  Attributes:
    target_epsilon: Largest epsilon of each of them.
    ranked: All plans, best first.
    report: Privacy report of the best plan.
    by_epsilon: The best of those mechanisms and participations that a picture
      has room for, at `_EPSILONS`; None without.
    given: Notes on how open settings were chosen.
  """

  target_epsilon: float
  ranked: _Plans
  report: report_lib.PrivacyReport
  by_epsilon: Sequence[_Plans] | None
  given: Sequence[str]

  @property
  def best(self) -> planning.Plan:
    """The one with the least error."""
    return self.ranked[0]

  @property
  def leanest(self) -> planning.Plan:
    """The one that needs the least memory, among those nearly as good."""
    near = [p for p in self.ranked if p.rmse <= _NEARLY * self.best.rmse]
    return min(near, key=lambda plan: plan.model_copies)

  @functools.cached_property
  def notes(self) -> list[str]:
    """Notes on what the figures mean and rest on."""
    claims = {p.participation.name: p.participation for p in self.ranked}
    protected = [
      f"{name}: {claim.neighboring_relation_in_words}, Delta ="
      f" {claim.sensitivity_in_clip_norms:g} C"
      for name, claim in claims.items()
    ]
    notes = [
      "RMSE and largest: noise of the sum of all rounds' means up to a round,"
      " over the rounds, in clip norms for a server learning rate of 1; the"
      " divisor of a round is"
      f" {self.best.participation.clients_per_round:,}. z: noise multiplier."
      " copies: of the model, that the noise needs beside it.",
      "All protect one user, each for its own participation:"
      f" {'; '.join(protected)}.",
    ]
    if any(claim.is_sampled for claim in claims.values()):
      notes.append(
        "Sampling amplifies only where the server draws users in secret, and"
        " has those whom it draws. Where devices come when they can, ask with"
        " participation check_ins and the bounds that the server enforces."
      )
    return [*notes, *self.given]

  def to_json(self) -> dict[str, Any]:
    """Returns JSON values by name."""
    values: dict[str, Any] = {
      "target_epsilon": self.target_epsilon,
      "candidates": [_to_json(plan) for plan in self.ranked],
      "leanest": _to_json(self.leanest),
      "report": self.report.to_json(),
      "notes": self.notes,
    }
    if self.by_epsilon is not None:
      values["by_epsilon"] = [
        {"epsilon": epsilon} | _to_json(plan)
        for plans in self.by_epsilon
        for epsilon, plan in zip(_EPSILONS, plans, strict=True)
      ]
    return report_lib.json_safe(values)

  def to_text(self) -> str:
    """Returns the table and what is recommended, in lines."""
    return templates.render(
      "choices.txt",
      choices=self,
      noise=_noise,
      describe=_describe,
      flags=_flags,
    )

  def draw(self, path: str | os.PathLike[str]) -> None:
    """Writes the picture of `by_epsilon` as PNG."""
    assert self.by_epsilon is not None
    by_label = {
      f"{p[0].noise_in_words},\n{p[0].participation.name}": p
      for p in self.by_epsilon
    }
    privacy_plots.plot_errors(
      path,
      {label: [p.rmse for p in plans] for label, plans in by_label.items()},
      _EPSILONS,
      sizes_by_label={
        label: [plan.size or 1 for plan in plans]
        for label, plans in by_label.items()
        if plans[0].participation.is_sampled and plans[0].size is not None
      },
      target_epsilon=self.target_epsilon,
      delta=self.best.delta,
      caption=self.caption,
    )

  @property
  def caption(self) -> str:
    """Caption: properties that all plans share."""
    plan, claim = self.best, self.best.participation
    alone = by_accountants = ""
    if claim.users_per_client > 1:
      alone = f" in virtual clients of {claim.users_per_client:,}"
    names = {
      report_lib.ACCOUNTANT_NAMES[p.accountants[0]]
      for p in self.ranked
      if p.participation.is_sampled
    }
    # Exact everywhere, unless users are sampled.
    if names:
      by_accountants = (
        f", by {' or '.join(sorted(names))} where users are sampled, exact"
        " where they are not"
      )
    sensitivity = claim.sensitivity_in_clip_norms
    delta = "C" if sensitivity == 1 else f"{sensitivity:g} C"
    return (
      f"{claim.num_users:,} users, {claim.cohort_in_words} a round{alone},"
      f" {plan.rounds:,} rounds. Root mean square noise of the sums of all"
      " rounds' means up to a round, over the rounds. At each point every"
      " mechanism has the noise that this epsilon needs for one user:"
      f" Δ = {delta}{by_accountants}; each has its best number of buffers"
      " or bands (at most 256)."
    )


def choose(
  plans: _Plans,
  target_epsilon: float,
  *,
  with_picture: bool,
  notes: Sequence[str] = (),
) -> Choices:
  """Finds the best of some plans.

  Privacy:
    As `mechanism_choice.rank`.

  Args:
    plans: As `mechanism_choice.list_plans` makes them.
    target_epsilon: Largest epsilon.
    with_picture: Whether a picture will be drawn, which needs other epsilons.
    notes: Notes on how open settings were chosen.

  Raises:
    errors.FieldError: If the target is out of its range.
  """
  bar = functools.partial(progress_lib.create_bar, "Calibrating")
  ranked = mechanism_choice.rank(bar(unit="plans", items=plans), target_epsilon)
  by_epsilon = None
  if with_picture:
    # The best of them, where there are more than can be told apart.
    best = list(dict.fromkeys(plan.family for plan in ranked))
    shown = {*best[: figures.MAX_CURVES]}
    families = mechanism_choice.families(p for p in plans if p.family in shown)
    by_epsilon = [
      mechanism_choice.best_by_epsilon(family, _EPSILONS)
      for family in bar(unit="curves", items=families)
    ]
  report = planning.create_report(ranked[0])
  return Choices(target_epsilon, ranked, report, by_epsilon, notes)


def _to_json(plan: planning.Plan) -> dict[str, Any]:
  """Returns a plan and its noise as JSON values."""
  names = ("size", "model_copies", "rmse", "max_error")
  return {name: getattr(plan, name) for name in names} | plan.to_json()


def _noise(plan: planning.Plan) -> str:
  if plan.size is None:
    return plan.noise_in_words
  what = str(plan.mechanism.size_field).removeprefix("num_")
  return f"{plan.noise_in_words}, {plan.size} {what}"


def _describe(plan: planning.Plan) -> str:
  return f"{_noise(plan)}, {plan.participation.name}"


def _flags(plan: planning.Plan) -> str:
  """Returns the flags of a training program."""
  claim = plan.participation
  flags = {
    "aggregator": plan.name,
    "participation": claim.name,
    **{name: vars(claim).get(name) for name in ("period", "min_separation")},
    plan.mechanism.size_field: plan.size,
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
  return templates.wrap(text, "  ")
