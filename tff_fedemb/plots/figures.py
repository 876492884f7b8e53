"""What all pictures have in common: colours, axes, captions, files.

Figures are drawn without pyplot, so that importing this module changes neither
the backend nor the settings of a program that plots for itself. Colours are
those of Okabe and Ito (2008), which the colour-blind can tell apart; lines
differ in style and marker as well.
"""

from collections.abc import Sequence
import os
import textwrap

from matplotlib import axes as mpl_axes
from matplotlib import figure as mpl_figure
from matplotlib import ticker
from matplotlib.backends import backend_agg

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
STYLES = ("-", "--", "-.", (0, (5, 1, 1, 1, 1, 1)), ":", (0, (8, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P")
GREY = "#666666"


def create_figure(
  height: float = 4.2,
) -> tuple[mpl_figure.Figure, mpl_axes.Axes]:
  """Returns a figure of this height in inches and its only panel."""
  figure = mpl_figure.Figure(figsize=(6.8, height), layout="constrained")
  figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
  return figure, figure.subplots()


def write(figure: mpl_figure.Figure, path: str | os.PathLike[str]) -> None:
  """Writes a figure as PNG."""
  backend_agg.FigureCanvasAgg(figure)
  # Without the version in it the file depends on the data only.
  figure.savefig(
    path,
    format="png",
    dpi=150,
    facecolor="white",
    metadata={"Software": None},
  )


def set_statement(
  figure: mpl_figure.Figure, statement: str, width: int
) -> None:
  """Puts a text below a figure, in lines of so many letters."""
  # Dollar signs would start a formula.
  text = textwrap.fill(statement, width).replace("$", r"\$")
  if text:
    figure.supxlabel(text, fontsize=9, color=GREY)


def decorate(
  axes: mpl_axes.Axes, *, title: str, x_label: str, y_label: str
) -> None:
  """Gives a panel its title, its labels and a grid."""
  axes.set_title(title, fontsize=12, loc="left", fontweight="bold")
  axes.set_xlabel(x_label, fontsize=11)
  axes.set_ylabel(y_label, fontsize=11)
  axes.tick_params(labelsize=10)
  axes.grid(True, color="#DDDDDD", linewidth=0.7)
  axes.set_axisbelow(True)
  axes.spines[["top", "right"]].set_visible(False)


def set_rounds(axes: mpl_axes.Axes, rounds: Sequence[int]) -> None:
  """Makes the horizontal axis one of rounds."""
  axes.xaxis.set_major_locator(
    ticker.MaxNLocator(
      nbins=7, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1
    )
  )
  if len(rounds):
    low, high = min(rounds), max(rounds)
    margin = max(0.03 * (high - low), 0.5 if high == low else 0.0)
    axes.set_xlim(low - margin, high + margin)
