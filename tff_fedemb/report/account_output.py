"""Output of `account` and `tune`: words, JSON values and a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import math
import os
import pathlib
from typing import Any

from etils import epy

from tff_fedemb import progress
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import epsilon as epsilon_lib
from tff_fedemb.accounting import report as report_lib
from tff_fedemb.mechanisms import strategy as strategy_lib
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.participation import registry as participations
from tff_fedemb.planning import calibration
from tff_fedemb.planning import extrapolation
from tff_fedemb.planning import mechanism_choice
from tff_fedemb.planning import planning
from tff_fedemb.planning import published
from tff_fedemb.records import run_directory
from tff_fedemb.report import templates

with epy.lazy_imports():
  from tff_fedemb.plots import figures
  from tff_fedemb.plots import privacy_plots

_Plans = Sequence[planning.Plan]

_REST = "`explain` says what this rests on; `output_json` keeps all of it."

# Epsilons in the picture of mechanisms.
_EPSILONS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)
# A mechanism within this factor of the least error counts as nearly as good.
_NEARLY = 1.1


def _summarize(
  figures: Sequence[str],
  report: report_lib.PrivacyReport,
  claim: participation_lib.Participation,
  extras: Sequence[str],
) -> str:
  """Returns figures, whom they protect, and what would break that.

  Args:
    figures: Lines of figures.
    report: Report on the rounds.
    claim: Participation that the report is about.
    extras: Notes that are shown if there is room.

  Returns:
    At most eight lines, as `progress.end` fits them.
  """
  relation = f"For one {report.unit}: {report.neighboring_relation}."
  lines = list(figures) + [relation]
  if report.epsilon < math.inf:
    lines.append(claim.breaks_if)
  return progress.end(
    lines, warnings=report.warnings, extras=extras, rest=_REST
  )


def tell_epsilon(
  report: report_lib.PrivacyReport,
  mechanism: str | None,
  account: composition.Account,
  notes: Sequence[str],
  *,
  planned: int = 0,
  explain: bool = True,
) -> tuple[dict[str, Any], str]:
  """Describes the account of everything that a plan or a run releases.

  Args:
    report: Report on the rounds.
    mechanism: Name of the mechanism; `None` if it is unknown.
    account: The rounds.
    notes: Further notes for readers.
    planned: Number of rounds that a run was asked for.
    explain: Whether the text has everything that the JSON values have.

  Returns:
    JSON values by name, and a text.
  """
  values = report.to_json()
  if report.unit_is_virtual_client_epsilon is None:
    # The sensitivity of the participation is one clip norm already.
    values["unit_is_virtual_client_epsilon"] = values["epsilon"]
  values |= {"mechanism": mechanism, **_describe_rounds(account)}
  values["notes"] = list(notes)
  if explain:
    text = templates.render(
      "epsilon.txt",
      report=report,
      notes=notes,
      virtual_client_unit=epsilon_lib.VIRTUAL_CLIENT_UNIT,
    )
    return values, text
  # A run that is not finished will cost more.
  of_all = f" of {planned:,}" if report.rounds < planned else ""
  lines = [
    f"epsilon = {templates.figure(report.epsilon)} at delta ="
    f" {report.delta:g} ({report.accountant}), {report.rounds:,}{of_all} rounds"
  ]
  if report.zcdp is not None:
    lines.append(f"zCDP    = {templates.figure(report.zcdp)}")
  extras = list(notes)
  if report.participation_checked is not None:
    extras.insert(0, report_lib.CHECKED)
  return values, _summarize(lines, report, account.participation, extras)


def _describe_rounds(account: composition.Account) -> dict[str, Any]:
  """Returns strategy, participation and events of rounds as JSON values.

  Args:
    account: The rounds.

  Returns:
    `strategy`, that of the first correlated noise or None; `participation`; and
    `events`, the text and count of each `DpEvent` that is composed.
  """
  strategy = None
  # Some rounds may have no noise.
  for noise in account.noises:
    if noise.strategy and strategy is None:
      strategy = {"name": noise.strategy.name, **noise.strategy.to_json()}
  events = []
  for event, count in account.composed_events():
    events.append({"event": repr(event), "count": count})
  claim = participations.PARTICIPATIONS.to_json(account.participation)
  return {"strategy": strategy, "participation": claim, "events": events}


def tell_calibration(
  guess: planning.Plan,
  solve_for: str,
  target_epsilon: float,
  value: float,
  notes: Sequence[str],
  *,
  explain: bool = True,
) -> tuple[dict[str, Any], str]:
  """Describes the result of a calibration.

  Args:
    guess: The plan that the search began with.
    solve_for: Name of the value that was searched for, as in
      `calibration.calibrate`.
    target_epsilon: Largest epsilon.
    value: The value that was found.
    notes: Notes on how open settings were chosen.
    explain: See `tell_epsilon`.

  Returns:
    JSON values by name, and a text.
  """
  plan = guess.with_value(solve_for, value)
  report = planning.create_report(plan)
  assumptions = list(calibration.assumptions(plan, solve_for))
  values = {
    "solve_for": solve_for,
    "target_epsilon": target_epsilon,
    "value": value,
    "plan": plan.to_json(),
    "report": report.to_json(),
    "assumptions": assumptions,
    "notes": list(notes),
  }
  found = f"{value:,}"
  if solve_for == "noise_multiplier":
    found = f"{value:,.{calibration.DIGITS + 3}g}"
  if explain:
    shown = values | {"plan": plan, "report": report, "found": found}
    return values, templates.render("calibration.txt", **shown)
  lines = [
    f"{found} is the smallest {solve_for} for epsilon <= {target_epsilon:g}",
    f"epsilon = {templates.figure(report.epsilon)} at delta = {plan.delta:g}"
    f" ({report.accountant}), {plan.rounds:,} rounds, noise multiplier"
    f" {plan.noise_multiplier:.{calibration.DIGITS}g}",
  ]
  extras = assumptions + list(notes)
  return values, _summarize(lines, report, plan.participation, extras)


def tell_extrapolation(
  found: extrapolation.Extrapolation,
  *,
  explain: bool = True,
) -> tuple[dict[str, Any], str]:
  """Describes an extrapolation in both readings.

  Args:
    found: The extrapolation.
    explain: See `tell_epsilon`.

  Returns:
    JSON values by name, and a text.
  """
  if explain:
    return found.to_json(), templates.render("extrapolation.txt", found=found)
  larger = found.participation
  whole = found.user_level
  lines = [
    f"EXTRAPOLATION, not the cost of the run: {found.rounds:,} rounds at noise"
    f" multiplier {found.noise_multiplier:g}",
    f"epsilon = {templates.figure(whole.epsilon)} at delta = {found.delta:g}"
    f" ({whole.accountant}) for one user:"
    f" {larger.neighboring_relation_in_words}",
  ]
  if whole != dataclasses.replace(found.authors, name=whole.name):
    lines.append(
      f"{templates.figure(found.authors.epsilon)} in the authors' reading,"
      f" which {epsilon_lib.VIRTUAL_CLIENT_UNIT}"
    )
  warnings = report_lib.warnings_of_all(larger, found.delta, whole.epsilon)
  return found.to_json(), progress.end(
    lines, warnings=list(warnings), extras=found.assumptions[:2], rest=_REST
  )


def tell_tuning(report: Mapping[str, Any], output_dir: pathlib.Path) -> str:
  """Returns the outcome of a tuning in eight lines; its report has the rest.

  Args:
    report: As returned by `training.tuning.TuningRun.run`.
    output_dir: Directory of the tuning.

  Returns:
    At most eight lines: the best trial, epsilon of all trials together, and
    where the files are.
  """
  best = report["best"]
  privacy = report["privacy"]
  lines = []
  extras = []
  if best is not None:
    lines.append(f"best trial: {_describe_trial(best)}")
  if privacy is not None:
    epsilon = float(privacy["epsilon"])
    lines += [
      f"epsilon = {epsilon:.4g} at delta = {privacy['delta']:g} (rdp), all"
      f" trials together ({privacy['mean_trials']:g} expected)",
      f"For one {privacy['unit']}: {privacy['neighboring_relation']}.",
    ]
    if epsilon < math.inf:
      lines.append(
        "It breaks if anyone learns of another trial, or how many there were."
      )
    extras.append(f"One trial costs {privacy['epsilon_of_one_trial']:.4g}.")
  return progress.end(
    lines,
    warnings=report["warnings"],
    extras=extras,
    rest=f"Written to {output_dir}, of which the guarantee covers"
    f" {run_directory.RELEASE}/ alone.",
  )


def _describe_trial(trial: Mapping[str, Any]) -> str:
  """Returns hyperparameters and recalls of a trial as text.

  Args:
    trial: JSON values of the trial, with `hyperparameters` and, if measured,
      `validation` and `test`.
  """
  values = dict(trial["hyperparameters"])
  for split in ("validation", "test"):
    if split in trial:
      values[split] = trial[split]
  shown = []
  for name, value in values.items():
    text = f"{value:.4g}" if isinstance(value, float) else f"{value}"
    shown.append(f"{name} {text}")
  return ", ".join(shown)


def tell_table(rows: Sequence[published.Row]) -> tuple[dict[str, Any], str]:
  """Describes the authors' table, with the assumptions of each row.

  Args:
    rows: Rows of the table.

  Returns:
    JSON values by name, and a text.
  """
  text = templates.render("table.txt", rows=rows, published=published)
  return {"rows": [row.to_json() for row in rows]}, text


def tell_choices(
  ranked: _Plans,
  target_epsilon: float,
  notes: Sequence[str],
) -> tuple[dict[str, Any], str]:
  """Describes plans in a table, and recommends some.

  The recommended plans are the one with the least error and, among those within
  1.1 times that error, the one that needs the least memory.

  Args:
    ranked: Plans with the noise for a target epsilon, best first.
    target_epsilon: Largest epsilon of each of them.
    notes: Notes on how open settings were chosen.

  Returns:
    JSON values by name, and a text.
  """
  best = ranked[0]
  report = planning.create_report(best)
  # The plan with the least memory, among those nearly as good as the best.
  near = [plan for plan in ranked if plan.error <= _NEARLY * best.error]
  leanest = min(near, key=lambda plan: plan.model_copies)
  notes = list(_notes_on(ranked)) + list(notes)
  values = {
    "target_epsilon": target_epsilon,
    "candidates": [_to_json(plan) for plan in ranked],
    "leanest": _to_json(leanest),
    "report": report.to_json(),
    "notes": notes,
  }
  return values, templates.render(
    "choices.txt",
    target_epsilon=target_epsilon,
    ranked=ranked,
    best=best,
    lean=leanest,
    report=report,
    notes=notes,
    noise=_noise,
    describe=_describe,
    flags=_flags,
  )


def _notes_on(ranked: _Plans) -> Iterator[str]:
  """Yields notes on the meaning and the assumptions of the figures.

  Args:
    ranked: Plans, at least one.

  Yields:
    Sentences on the units of errors, on whom each participation protects and,
    if some plan samples users, on what sampling assumes.
  """
  claims = {plan.participation.name: plan.participation for plan in ranked}
  protected = []
  for name, claim in claims.items():
    protected.append(
      f"{name}: {claim.neighboring_relation_in_words}, Delta ="
      f" {claim.sensitivity_in_clip_norms:g} C"
    )
  yield (
    "RMSE and largest: noise of the model after each round, over the rounds,"
    f" for server momentum {ranked[0].workload.momentum:g}, in clip norms for a"
    " server learning rate of 1; the divisor of a round is"
    f" {ranked[0].participation.clients_per_round:,}. z: noise multiplier."
    " copies: copies of the model that the noise needs besides it."
  )
  yield (
    "All protect one user, each for its own participation:"
    f" {'; '.join(protected)}."
  )
  if any(claim.is_sampled for claim in claims.values()):
    yield (
      "Sampling amplifies privacy only if the server draws users in secret and"
      " gets those whom it draws. If devices come when they can, ask with"
      " participation check_ins and the bounds that the server enforces."
    )


def draw_choices(
  plans: _Plans,
  ranked: _Plans,
  target_epsilon: float,
  path: str | os.PathLike[str],
) -> None:
  """Draws the noise of mechanisms over epsilon as PNG.

  Privacy:
    As `mechanism_choice.rank`.

  Args:
    plans: Plans as returned by `mechanism_choice.list_plans`.
    ranked: The same with the noise for the target, best first.
    target_epsilon: Epsilon to mark.
    path: File to write.
  """
  # Only the best ones, as a picture has room for a limited number of curves.
  shown = list(dict.fromkeys(plan.family for plan in ranked))
  best = mechanism_choice.best_by_epsilon(
    plans, shown[: figures.MAX_CURVES], _EPSILONS
  )
  errors_by_label = {}
  sizes_by_label = {}
  for found in best:
    first = found[0]
    label = f"{first.noise_in_words},\n{first.participation.name}"
    errors_by_label[label] = [plan.error for plan in found]
    if first.participation.is_sampled and first.size is not None:
      sizes_by_label[label] = [plan.size or 1 for plan in found]
  privacy_plots.plot_errors(
    path,
    errors_by_label,
    _EPSILONS,
    sizes_by_label=sizes_by_label,
    target_epsilon=target_epsilon,
    delta=ranked[0].delta,
    caption=_caption(ranked),
  )


def _caption(ranked: _Plans) -> str:
  """Describes below the picture what all plans have in common.

  Args:
    ranked: Plans, at least one.
  """
  plan = ranked[0]
  claim = plan.participation
  alone = ""
  if claim.users_per_client > 1:
    alone = f" in virtual clients of {claim.users_per_client:,}"
  sensitivity = claim.sensitivity_in_clip_norms
  delta = "C" if sensitivity == 1 else f"{sensitivity:g} C"
  objective = "Root mean square noise of the models after each round"
  if plan.workload.noise_objective == "last":
    objective = "Noise of the last model"
  return (
    f"{claim.num_users:,} users, {claim.cohort_in_words} a round{alone},"
    f" {plan.rounds:,} rounds. {objective}"
    f" at server momentum {plan.workload.momentum:g}. At each point every"
    " mechanism has the noise that this epsilon needs for one user:"
    f" Δ = {delta}, by the tightest valid accountant; each has its best number"
    " of buffers or bands (at most 256)."
  )


def _to_json(plan: planning.Plan) -> dict[str, Any]:
  """Returns a plan and its noise as JSON values.

  Args:
    plan: The plan.

  Returns:
    The plan's own values, with `size` of its matrix, `model_copies` that its
    state takes, `rmse` and `max_error`.
  """
  names = ("size", "model_copies", "rmse", "max_error")
  return {name: getattr(plan, name) for name in names} | plan.to_json()


def _noise(plan: planning.Plan) -> str:
  """Returns the mechanism and its size in words.

  Args:
    plan: The plan.

  Returns:
    For example the noise's name and "16 bands".
  """
  if plan.size is None:
    return plan.noise_in_words
  what = str(plan.mechanism.size_field).removeprefix("num_")
  return f"{plan.noise_in_words}, {plan.size} {what}"


def _describe(plan: planning.Plan) -> str:
  """Returns the mechanism and the participation in words."""
  return f"{_noise(plan)}, {plan.participation.name}"


def _flags(plan: planning.Plan) -> str:
  """Returns the flags of a training program for a plan, in lines.

  Args:
    plan: The plan.

  Returns:
    Lines of at most 80 columns, indented by two. Settings that the
    participation or mechanism does not have are left out.
  """
  claim = plan.participation
  flags = {
    "aggregator": plan.name,
    "participation": claim.name,
    # Only some participations have these fields.
    "period": vars(claim).get("period"),
    "min_separation": vars(claim).get("min_separation"),
    plan.mechanism.size_field: plan.size,
    "clients_per_round": claim.clients_per_round,
    "users_per_client": claim.users_per_client,
    "rounds": plan.rounds,
    "noise_multiplier": plan.noise_multiplier,
  }
  if plan.workload != strategy_lib.PREFIX_SUMS:
    flags["server_momentum"] = plan.workload.momentum
    flags["noise_objective"] = plan.workload.noise_objective
  elif plan.mechanism.follows_workload:
    flags["noise_objective"] = strategy_lib.OF_PREFIX_SUMS
  given = [f"--{name}={x}" for name, x in flags.items() if x is not None]
  text = " ".join(given)
  if claim.max_participations is not None:
    text += (
      f" (deployment: server.max_participations {claim.max_participations:,})"
    )
  return templates.wrap(text, "  ")
