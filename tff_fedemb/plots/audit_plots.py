"""Pictures of an audit: what is claimed and what was found, over rounds."""

from collections.abc import Mapping
from collections.abc import Sequence
import math
import os

from tff_fedemb.plots import figures


def plot_audit(
  path: str | os.PathLike[str],
  rounds: Sequence[int],
  claimed: Sequence[float],
  lower_bounds: Mapping[str, Sequence[float]],
  *,
  delta: float,
  caption: str,
) -> None:
  """Writes the epsilon that is claimed and the lower bounds of some attacks.

  Args:
    path: PNG file to write, in a directory that exists.
    rounds: `[n]` numbers of rounds, ascending.
    claimed: `[n]` epsilons; those that are infinite are left out.
    lower_bounds: `[n]` lower bounds of epsilon by attack.
    delta: At which all of them hold.
    caption: What they assume, in words, printed below the axes.

  Raises:
    errors.FieldError: If there are too many attacks, or none.
  """
  figures.check_count("lower_bounds", len(lower_bounds))
  figure, panels = figures.create_figure(6.8, 4.6)
  axes = panels[0, 0]
  finite = [math.nan if value == math.inf else value for value in claimed]
  axes.plot(rounds, finite, color="black", linewidth=2, label="claimed")
  for index, (name, values) in enumerate(lower_bounds.items()):
    axes.plot(
      rounds,
      values,
      color=figures.COLORS[index],
      linestyle=figures.STYLES[index],
      marker=figures.MARKERS[index],
      markersize=5,
      label=f"at least, by {name.replace('_', ' ')}",
    )
  axes.set_ylim(bottom=0)
  figures.decorate(
    axes,
    title="Epsilon: claimed, and found by attacks",
    x_label="round",
    y_label=figures.epsilon_label(delta),
  )
  figures.set_rounds(axes, rounds)
  axes.legend(fontsize=9, frameon=False)
  figures.set_statement(figure, caption, width=88)
  figures.write(figure, path)
