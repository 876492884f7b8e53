"""The report of finished runs: one HTML file that needs no other.

The file contains its pictures, styles and script, and its own content security
policy forbids every request.
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
  """Runs to report on, and what to show of them.

  Attributes:
    run_dirs: Directories of finished runs of one task, at most 6.
    output: HTML file.
    overwrite: Whether to replace a file that exists.
    show_images_of_training_users: Whether to show held-out images that may
      belong to users who trained. No guarantee covers them.
    max_images: Number of held-out images to choose pictures from, at random.
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
  """Writes the report that a configuration asks for, and prints where it is.

  Everything is rendered before the file is written. Without the data, the page
  has all but the pictures of held-out images, and says why.

  Args:
    config: Runs, file and contents of the report.
    task: Task of the runs [opened as the runs recorded it].

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
  """Writes the report of a finished run.

  Args:
    run_dir: Directory of the run.
    task: As in `execute`.
    output: HTML file, replaced if it exists [`FILE_NAME` in the directory].

  Raises:
    errors.FieldError: As `execute`.
    errors.DataError: As `execute`.
  """
  output = output or os.path.join(run_dir, FILE_NAME)
  config = ReportConfig(run_dirs=(run_dir,), output=output, overwrite=True)
  execute(config, task)


def write_release(run: finished_run.FinishedRun) -> None:
  """Writes the report on a run that may be given away.

  Args:
    run: The run; the page is `release/report.html` in its directory.

  Raises:
    errors.FieldError: If the page cannot be written.
  """
  output = run.path / run_directory.REPORT
  _write(os.fspath(output), render([run]))


def restore_release(run_dir: str | os.PathLike[str]) -> None:
  """Writes the page of `write_release` again if it was lost.

  Args:
    run_dir: Directory of a finished run.

  Raises:
    errors.FieldError: As `measured_runs.read_all`.
    errors.DataError: As `measured_runs.read_all`.
  """
  if os.path.exists(os.path.join(run_dir, run_directory.REPORT)):
    return
  (run,) = measured_runs.read_all([os.fspath(run_dir)])
  write_release(run)
  chain = run.account.chain
  if chain.given_away:
    # Only the digest of the page changes: other files stay as recorded.
    digests = dict(chain.given_away)
    name = run_directory.REPORT
    digests[name] = release.digest_files(run_dir)[name]
    chain.record_given_away(digests)


def _write(output: str, html: str) -> None:
  """Writes a page to a file, whole or not at all.

  Args:
    output: The file.
    html: The page.

  Raises:
    errors.FieldError: If it cannot be written; names `output`.
  """
  output_files.write(
    {"output": (output, lambda path: path.write_text(html, encoding="utf-8"))}
  )


def render(
  runs: Sequence[finished_run.FinishedRun],
  config: ReportConfig | None = None,
  task: task_lib.Task | None = None,
) -> str:
  """Returns the report on some runs as HTML.

  Privacy:
    Without a configuration the page may be given away: it has what the
    guarantee covers, and figures of held-out images of users who do not train.

  Args:
    runs: The runs.
    config: Contents of the page; `None` for a page without pictures, whose
      figures of users who train all have noise.
    task: Task of the runs [opened as the runs recorded it].

  Returns:
    HTML that loads nothing from elsewhere.

  Raises:
    errors.FieldError: As `FinishedRun.account`.
    errors.DataError: As `FinishedRun.account`.
  """
  thumbnails: dict[str, str] = {}
  sections = []
  for run in progress.create_bar("Report", unit="runs", items=runs):
    sections.append(_describe(run, config, task, thumbnails))
  return templates.render(
    "page.html",
    sections=sections,
    comparison=_compare(runs),
    thumbnails=thumbnails,
    metric_titles=retrieval.TITLES,
    format_metric=retrieval.format_metric,
  )


def _compare(runs: Sequence[finished_run.FinishedRun]) -> str | None:
  """Draws the ROC curves of several runs, and one of an untrained model.

  Args:
    runs: The runs.

  Returns:
    The picture as a data URI; None for one run, or if none has its curves.
  """
  measured = [run for run in runs if run.results]
  if not measured or len(runs) == 1:
    return None
  curves = {run.name: run.results[finished_run.TRAINED] for run in measured}
  curves[plots.UNTRAINED] = measured[0].results[plots.UNTRAINED]
  return _draw(functools.partial(plots.draw_roc, curves=curves))


def _draw(panel: plots.Panel) -> str:
  """Draws a panel; returns the picture as a data URI.

  Args:
    panel: A function that draws on axes of Matplotlib.
  """
  svg = plots.draw_svg(panel).encode()
  return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def _describe(
  run: finished_run.FinishedRun,
  config: ReportConfig | None,
  task: task_lib.Task | None,
  thumbnails: dict[str, str],
) -> dict[str, Any]:
  """Returns the values that the template needs for the section of a run.

  Args:
    run: The run.
    config: Contents of the page; None for a page to give away, which has
      neither pictures nor figures of updates.
    task: Task of the run, if it is at hand.
    thumbnails: Receives the images that are shown.

  Returns:
    Values by name. `why_no_pictures` says which error kept the held-out images
    from being shown; None if none did.
  """
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
  """Opens the task of a run, whose data may have moved.

  Args:
    run: The run.
    config: Its paths replace those that the run recorded.

  Raises:
    errors.FieldError: If the data are missing, or a path is of no use.
    errors.DataError: If the data are damaged.
  """
  source = run.spec.task
  known = {spec.name for spec in config_lib.specs(type(source))}
  given: dict[str, Any] = {}
  for name in ("data_dir", "table", "cache_dir"):
    value = getattr(config, name)
    if value is None:
      continue
    if name not in known:
      must = f"not be given for task {run.summary['task']}, which has none"
      raise errors.FieldError(name, must, value)
    given[name] = value
  # on_bad_example may change when a run goes on, so the summary decides it.
  if run.summary["data"]["num_bad_examples"]:
    given["on_bad_example"] = "skip"
  return dataclasses.replace(source, **given).create()


def _create_held_out_panels(
  run: finished_run.FinishedRun,
  pictures: dict[str, Any],
) -> dict[str, Any]:
  """Returns panels by name: similarity; with enough classes sizes and det.

  Args:
    run: The run, for its thresholds.
    pictures: Values of `held_out_pictures.create`.
  """
  thresholds = run.trained["threshold_at_far"]
  panels = {
    "similarity": functools.partial(
      plots.draw_similarities,
      same=pictures["same"],
      different=pictures["different"],
      thresholds={float(rate): x for rate, x in thresholds.items()},
    )
  }
  found = pictures["recognized"]
  if found:
    panels["sizes"] = functools.partial(
      identification_plots.draw_sizes, by_images=found
    )
    panels["det"] = functools.partial(
      identification_plots.draw_det, by_images=found
    )
  return panels
