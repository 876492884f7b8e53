"""Renders the templates of pages, and of texts that programs print."""

from __future__ import annotations

import functools
import textwrap
from typing import Any

import jinja2

from tff_fedemb import progress
from tff_fedemb.report import words


def wrap(text: str, first: str = "") -> str:
  """Breaks a paragraph into lines of at most 80 letters.

  Args:
    text: The paragraph.
    first: Indent or mark before the first line; the others are indented by its
      length.

  Returns:
    The lines, joined by line breaks; words are not broken at hyphens.
  """
  return textwrap.fill(
    text,
    80,
    initial_indent=first,
    subsequent_indent=" " * len(first),
    break_on_hyphens=False,
  )


def figure(value: float) -> str:
  """Writes a number in four decimals, or below 0.1 in four digits.

  Args:
    value: The number, at least 0.

  Returns:
    For example "3.9012", "0.01234", and "inf" for infinity.
  """
  return f"{value:.4f}" if value >= 0.1 or not value else f"{value:.4g}"


@functools.cache
def _environment() -> jinja2.Environment:
  """Returns the templates with the functions and filters that they use."""
  environment = jinja2.Environment(
    loader=jinja2.PackageLoader("tff_fedemb.report", "template"),
    autoescape=jinja2.select_autoescape(),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
  )
  environment.globals["count"] = words.count
  environment.filters |= {
    "percent": lambda share: f"{100 * share:.1f} %",
    "epsilon": words.format_epsilon,
    "bytes": progress.format_bytes,
    "time": progress.say_time,
    "figure": figure,
    "decimals": lambda x: "-" if x is None else f"{x:.2f}",
    "wrap": wrap,
  }
  return environment


def render(name: str, **values: Any) -> str:
  """Renders a template.

  Args:
    name: File name of the template; only .html is escaped.
    **values: Values by their names in the template.

  Returns:
    The text, without line breaks at its end.

  Raises:
    jinja2.UndefinedError: If the template uses a name that has no value.
  """
  template = _environment().get_template(name)
  return template.render(**values).rstrip("\n")
