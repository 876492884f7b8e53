"""Renders the templates of pages, and of what programs print."""

from __future__ import annotations

import functools
import textwrap
from typing import Any

import jinja2

from tff_fedemb import progress
from tff_fedemb.report import words


def wrap(text: str, first: str = "") -> str:
  """Breaks a paragraph into lines of 80 letters, behind an indent or a mark."""
  return textwrap.fill(
    text,
    80,
    initial_indent=first,
    subsequent_indent=" " * len(first),
    break_on_hyphens=False,
  )


def figure(value: float) -> str:
  """Four decimals, or digits where those would be 0."""
  return f"{value:.4f}" if value >= 0.1 or not value else f"{value:.4g}"


@functools.cache
def _environment() -> jinja2.Environment:
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
  """Returns the text of a template, without line breaks at its end."""
  return _environment().get_template(name).render(**values).rstrip("\n")
