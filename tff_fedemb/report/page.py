"""The report of finished runs: one HTML file that asks for nothing else.

Pictures are in the file as data, styles and the little script as text, and the
page's own content security policy forbids it every request.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
import dataclasses
import math
import os
import pathlib
from typing import Any

from etils import epy
import jinja2
import markupsafe

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import output_files
from tff_fedemb import progress
from tff_fedemb.data import bad_examples
from tff_fedemb.program import run_directory
from tff_fedemb.run import account as account_run
from tff_fedemb.run import task as task_lib

with epy.lazy_imports():
  from tff_fedemb.plots import identification_plots
  from tff_fedemb.plots import training_plots as plots
  from tff_fedemb.report import charts
  from tff_fedemb.report import held_out_pictures
  from tff_fedemb.report import run_files
  from tff_fedemb.report import words

FILE_NAME = "report.html"

_MAX_IMAGES = 3000
# Beyond rounding of an export and of another batch size.
_RECALL_TOLERANCE = 0.005
# Figures of held-out images that are not of users who train go along with a
# model.
_COVERED = ("epsilon", "roc")


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
    on_bad_example: What to do about images that cannot be used [left out if the
      run has left some out].
  """

  run_dirs: tuple[str, ...]
  output: str
  overwrite: bool = False
  show_images_of_training_users: bool = False
  max_images: int = config_lib.field(_MAX_IMAGES, minimum=50, maximum=6_000)
  data_dir: str | None = None
  table: str | None = None
  cache_dir: str | None = None
  on_bad_example: str | None = config_lib.field(
    None, choices=bad_examples.POLICIES
  )


def execute(config: ReportConfig) -> None:
  """Writes the report that a configuration asks for, and says so."""
  output_files.check({"output": config.output}, overwrite=config.overwrite)
  data = {
    name: value
    for name in ("data_dir", "table", "cache_dir", "on_bad_example")
    if (value := getattr(config, name)) is not None
  }
  options = held_out_pictures.Options(
    config.max_images, config.show_images_of_training_users, data
  )
  _write(config.run_dirs, config.output, options)
  print(f"Written to {config.output}.")


def write_for_run(
  run_dir: str | os.PathLike[str], task: task_lib.Task
) -> pathlib.Path:
  """Writes the report of a finished run into its directory.

  Args:
    run_dir: The directory.
    task: That of the run.

  Returns:
    Where the report is.
  """
  output = pathlib.Path(run_dir) / FILE_NAME
  options = held_out_pictures.Options(_MAX_IMAGES, task=task)
  _write([os.fspath(run_dir)], os.fspath(output), options)
  return output


def write_release(
  run_dir: str | os.PathLike[str],
  account: account_run.Recomputed | None = None,
) -> None:
  """Writes the page on a finished run that may be given away.

  Args:
    run_dir: Its directory.
    account: That of the run, if it is at hand; without, a page that is there
      is left as it is.
  """
  output = pathlib.Path(run_dir) / run_directory.RELEASE / FILE_NAME
  if account is not None or not output.exists():
    _write([os.fspath(run_dir)], os.fspath(output), None, account)


def _write(
  run_dirs: Sequence[str],
  output: str,
  options: held_out_pictures.Options | None,
  account: account_run.Recomputed | None = None,
) -> None:
  runs = run_files.read_all(run_dirs, account)
  html = render(runs, options)
  output_files.write(
    {"output": (output, lambda path: path.write_text(html, encoding="utf-8"))}
  )


def render(
  runs: Sequence[run_files.Run], options: held_out_pictures.Options | None
) -> str:
  """Returns the page on some runs.

  Privacy:
    Without options the page may be given away: it has what the guarantee
    covers, and figures of held-out images of users who do not train.

  Args:
    runs: The runs.
    options: How to make pictures; `None` for a page without, nor with any
      figure of users who train that has no noise.
  """
  shown = held_out_pictures.Thumbnails()
  sections = [
    _describe(run, options, shown)
    for run in progress.create_bar("Report", unit="runs", items=runs)
  ]
  environment = jinja2.Environment(
    loader=jinja2.PackageLoader("tff_fedemb.report", "template"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
  )
  environment.filters.update(
    percent=lambda share: f"{100 * share:.1f} %",
    epsilon=words.format_epsilon,
    breakable=_breakable,
    bytes=progress.format_bytes,
  )
  return environment.get_template("page.html").render(
    sections=sections,
    task=runs[0].summary["task"],
    comparison=_draw_comparison(runs) if len(runs) > 1 else None,
    same_images=len({run.trained["num_images"] for run in runs}) == 1,
    rates=list(runs[0].trained["recall_at_far"]),
    thumbnails=shown.all,
    count=words.count,
  )


def _breakable(name: str) -> markupsafe.Markup:
  """A flag or a path that may be broken where its parts end."""
  text = markupsafe.escape(name)
  for end in ("_", "/"):
    text = text.replace(end, markupsafe.Markup(f"{end}<wbr>"))
  return text


def _draw(panel: plots.Panel) -> str:
  """Returns the picture of a panel as a data URI."""
  svg = plots.draw_svg(panel).encode()
  return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def _describe(
  run: run_files.Run,
  options: held_out_pictures.Options | None,
  shown: held_out_pictures.Thumbnails,
) -> dict[str, Any]:
  """What the template shows of a run."""
  found, why_not, devices = None, None, None
  is_release = options is None
  if options is not None:
    devices = words.describe_devices(run)
    try:
      found = held_out_pictures.create(run, options, shown)
    except (errors.FieldError, errors.DataError) as error:
      # The rest of the page needs no data.
      why_not = " ".join(str(error).split())
  return {
    "run": run,
    "is_release": is_release,
    "privacy": run.account.report,
    "guarantee": words.create_guarantee(run),
    "has_recall": not (is_release and run.evaluation_on_training_users),
    "charts": _draw_all(run, found, is_release=is_release),
    "deployment": devices,
    "pictures": found,
    "why_no_pictures": why_not,
    "check": found and _compare_recall(run, found),
  }


def _draw_all(
  run: run_files.Run,
  pictures: held_out_pictures.Pictures | None,
  *,
  is_release: bool,
) -> dict[str, str]:
  panels = charts.create_panels(run)
  if pictures is not None:
    panels["similarity"] = plots.SimilarityPanel(
      pictures.same,
      pictures.different,
      {float(r): x for r, x in run.trained["threshold_at_far"].items()},
    )
    if pictures.recognized:
      panels["sizes"] = identification_plots.SizesPanel(pictures.recognized)
      panels["det"] = identification_plots.DetPanel(pictures.recognized)
  if run.deployment is not None and not is_release:
    panels |= charts.create_week(run, panels)
  if is_release:
    shown = ("epsilon",) if run.evaluation_on_training_users else _COVERED
    panels = {name: panels[name] for name in shown if name in panels}
  return {name: _draw(panel) for name, panel in panels.items()}


def _compare_recall(
  run: run_files.Run, pictures: held_out_pictures.Pictures
) -> str:
  """What this page's own evaluation of the exported model says."""
  written = run.trained["recall_at_far"]["0.001"]
  again = pictures.recall_again
  begin, images = "Checked for this page:", "the same images"
  if pictures.num_images < pictures.num_found:
    images = (
      f"a random sample of {pictures.num_images:,} of the"
      f" {pictures.num_found:,} images"
    )
  elif not math.isclose(written, again, abs_tol=_RECALL_TOLERANCE):
    begin = "Warning:"
    images = (
      f"these images, not the {written:.4f} of {run_directory.SUMMARY}; one of"
      " them is not of this run"
    )
  return (
    f"{begin} the model gives recall {again:.4f} at false accept rate 0.001 on"
    f" {images}."
  )


def _draw_comparison(runs: Sequence[run_files.Run]) -> str | None:
  """The ROC curves of all runs that have one, and one of an untrained model."""
  curves: dict[str, Any] = {
    run.name: run.results[run_files.TRAINED] for run in runs if run.results
  }
  if not curves:
    return None
  first = next(run for run in runs if run.results)
  curves[plots.UNTRAINED] = first.results[plots.UNTRAINED]
  return _draw(plots.RocPanel(curves))
