"""The report of finished runs: one HTML file that asks for nothing else.

Pictures are in the file as data, styles and the little script as text, and the
page's own content security policy forbids it every request.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
import dataclasses
import functools
import os
from typing import Any

from etils import epy

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import progress
from tff_fedemb.records import output_files
from tff_fedemb.records import release
from tff_fedemb.records import run_directory
from tff_fedemb.spec import task as task_lib

with epy.lazy_imports():
  from tff_fedemb.evaluation import retrieval
  from tff_fedemb.plots import identification_plots
  from tff_fedemb.plots import training_plots as plots
  from tff_fedemb.report import finished_run
  from tff_fedemb.report import held_out_pictures
  from tff_fedemb.report import measured_runs
  from tff_fedemb.report import templates
  from tff_fedemb.report import training_report
  from tff_fedemb.report import words

FILE_NAME = "report.html"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportConfig(config_lib.Config):
  """Runs to write a report of, and what to show in it.

  Attributes:
    run_dirs: Directories of finished runs of one task, at most 6.
    output: HTML file.
    overwrite: Whether to replace a file that exists.
    show_images_of_training_users: Whether to show held-out images that may
      belong to users who trained. No guarantee covers them.
    max_images: Held-out images to choose pictures from, a random sample.
    data_dir: Where the data are now [as the runs recorded].
    table: As data_dir, for runs on a table.
    cache_dir: Directory of converted copies of data [~/.cache/tff_fedemb].
  """

  run_dirs: tuple[str, ...] = config_lib.field(may_have_commas=True)
  output: str
  overwrite: bool = False
  show_images_of_training_users: bool = False
  max_images: int = config_lib.field(3000, minimum=50, maximum=6_000)
  data_dir: str | None = None
  table: str | None = None
  cache_dir: str | None = None


def execute(config: ReportConfig, task: task_lib.Task | None = None) -> None:
  """Writes the report that a configuration asks for, and says so.

  Args:
    config: Runs, file and contents of the report.
    task: Task of the runs, if it is at hand.

  Raises:
    errors.FieldError: If the file cannot be written, or as
      `measured_runs.read_all`.
    errors.DataError: As `measured_runs.read_all`.
  """
  output_files.check({"output": config.output}, overwrite=config.overwrite)
  run_dirs = config_lib.split_words(config.run_dirs, os.path.exists)
  runs = measured_runs.read_all(run_dirs)
  _write(config.output, render(runs, config, task))
  progress.say(f"Written to {config.output}.")


def write_for_run(
  run_dir: str,
  task: task_lib.Task | None = None,
  output: str | None = None,
) -> None:
  """Writes the report of a finished run [into its directory]."""
  output = output or os.path.join(run_dir, FILE_NAME)
  execute(
    ReportConfig(run_dirs=(run_dir,), output=output, overwrite=True), task
  )


def write_release(run: finished_run.FinishedRun) -> None:
  """Writes the page on a run that may be given away, with its account."""
  output = run.path / run_directory.REPORT
  _write(os.fspath(output), render([run]))


def restore_release(run_dir: str | os.PathLike[str]) -> None:
  """Writes that page of a complete run again if it was lost.

  Raises:
    As `measured_runs.read_all`.
  """
  if os.path.exists(os.path.join(run_dir, run_directory.REPORT)):
    return
  (run,) = measured_runs.read_all([os.fspath(run_dir)])
  write_release(run)
  chain = run.account.chain
  if chain.given_away:
    # The report replaces an earlier one; other files stay as recorded.
    page = release.digest_files(run_dir)[run_directory.REPORT]
    chain.record_given_away({**chain.given_away, run_directory.REPORT: page})


def _write(output: str, html: str) -> None:
  output_files.write(
    {"output": (output, lambda path: path.write_text(html, encoding="utf-8"))}
  )


def render(
  runs: Sequence[finished_run.FinishedRun],
  config: ReportConfig | None = None,
  task: task_lib.Task | None = None,
) -> str:
  """Returns the page on some runs.

  Privacy:
    Without a configuration the page may be given away: it has what the
    guarantee covers, and figures of held-out images of users who do not train.

  Args:
    runs: The runs.
    config: Contents of the page; `None` for a page without pictures and without
      figures of users who train, unless these have noise.
    task: Task of the runs, if it is at hand.
  """
  thumbnails: dict[str, str] = {}
  sections = [
    _describe(run, config, task, thumbnails)
    for run in progress.create_bar("Report", unit="runs", items=runs)
  ]
  # The ROC curves of all runs that have one, and one of an untrained model.
  curves = {r.name: r.results[finished_run.TRAINED] for r in runs if r.results}
  for run in [run for run in runs if run.results][:1]:
    curves[plots.UNTRAINED] = run.results[plots.UNTRAINED]
  comparison = functools.partial(plots.draw_roc, curves=curves)
  return templates.render(
    "page.html",
    sections=sections,
    comparison=_draw(comparison) if curves and len(runs) > 1 else None,
    thumbnails=thumbnails,
    metric_titles=retrieval.TITLES,
    format_metric=retrieval.format_metric,
  )


def _draw(panel: plots.Panel) -> str:
  """Returns the picture of a panel as a data URI."""
  svg = plots.draw_svg(panel).encode()
  return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def _describe(
  run: finished_run.FinishedRun,
  config: ReportConfig | None,
  task: task_lib.Task | None,
  thumbnails: dict[str, str],
) -> dict[str, Any]:
  """Returns the values from which the template makes a run's section."""
  found = None
  why_not = None
  panels = training_report.create_panels(run)
  has_recall = True
  if config is None:
    has_recall = not run.summary["evaluation_on_training_users"]
    covered = ("epsilon", "roc") if has_recall else ("epsilon",)
    panels = {name: panels[name] for name in covered if name in panels}
  else:
    try:
      found = held_out_pictures.create(
        run,
        task or _open_task(run, config),
        max_images=config.max_images,
        shows_training_users=config.show_images_of_training_users,
        thumbnails=thumbnails,
      )
      panels |= _create_held_out_panels(run, found)
    except (errors.FieldError, errors.DataError) as error:
      # The rest of the page needs no data.
      why_not = " ".join(str(error).split())
    if run.deployment is not None:
      panels |= training_report.create_week(run, panels)
  return {
    "run": run,
    "is_release": config is None,
    "privacy": run.account.report,
    "guarantee": words.rate_guarantee(run.account),
    "has_recall": has_recall,
    "charts": {name: _draw(panel) for name, panel in panels.items()},
    "pictures": found,
    "why_no_pictures": why_not,
  }


def _open_task(
  run: finished_run.FinishedRun,
  config: ReportConfig,
) -> task_lib.Task:
  """The task of the run, as its spec has it, with the data where they are."""
  source = run.spec.task
  known = {spec.name for spec in config_lib.specs(type(source))}
  names = known & {"data_dir", "table", "cache_dir"}
  values = {name: getattr(config, name) for name in names}
  given = {name: value for name, value in values.items() if value is not None}
  # on_bad_example is no setting of the run: the summary says what happened.
  if run.summary["data"]["num_bad_examples"]:
    given["on_bad_example"] = "skip"
  return dataclasses.replace(source, **given).create()


def _create_held_out_panels(
  run: finished_run.FinishedRun,
  pictures: dict[str, Any],
) -> dict[str, Any]:
  """Panels by name: similarity, and sizes and det if there are classes."""
  thresholds = run.trained["threshold_at_far"]
  panels = {
    "similarity": functools.partial(
      plots.draw_similarities,
      same=pictures["same"],
      different=pictures["different"],
      thresholds={float(rate): x for rate, x in thresholds.items()},
    )
  }
  if found := pictures["recognized"]:
    for name, draw in (
      ("sizes", identification_plots.draw_sizes),
      ("det", identification_plots.draw_det),
    ):
      panels[name] = functools.partial(draw, by_images=found)
  return panels
