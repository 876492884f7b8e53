"""Pictures of identification: rates over the gallery's size, and DET."""

from collections.abc import Sequence

from matplotlib import axes as mpl_axes

from tff_fedemb.evaluation import identification
from tff_fedemb.evaluation import recognition
from tff_fedemb.plots import figures


def _name(part: recognition.Recognition) -> str:
  return f"{part.images} image{'s' if part.images > 1 else ''} each"


def _draw_rates(
  axes: mpl_axes.Axes,
  places: Sequence[float],
  rates: Sequence[identification.Rate],
  index: int,
  label: str,
) -> list:
  """A line in the band of its intervals; returns its key."""
  style = figures.style_of(index)
  low = [x.low for x in rates]
  high = [x.high for x in rates]
  axes.fill_between(places, low, high, color=style["color"], alpha=0.15)
  return axes.plot(places, [x.value for x in rates], label=label, **style)


def draw_sizes(
  axes: mpl_axes.Axes,
  by_images: Sequence[recognition.Recognition],
) -> None:
  """Draws shares of images found over the size of the gallery.

  Args:
    axes: The panel.
    by_images: Figures by number of enrolled images, at least one.
  """
  keys = []
  rate = recognition.FALSE_POSITIVE_RATE
  for part in by_images:
    sizes = [x.size for x in part.sizes]
    ranked = [x.rank_one for x in part.sizes]
    keys += _draw_rates(
      axes, sizes, ranked, len(keys), f"nearest is right, {_name(part)}"
    )
    known = [x for x in part.sizes if x.fnir is not None]
    found = [x.fnir.complement() for x in known if x.fnir is not None]
    keys += _draw_rates(
      axes,
      [x.size for x in known],
      found,
      len(keys),
      f"and {1 - rate:.0%} of strangers rejected, {_name(part)}",
    )
  figures.decorate(
    axes,
    title="How many people it tells apart",
    x_label="people in the gallery",
    y_label="share of their images found",
    keys=keys,
  )
  figures.set_rates(axes)
  sizes = [x.size for part in by_images for x in part.sizes]
  figures.set_logarithmic(axes.xaxis, sizes, formatter="{x:,.0f}")


def draw_det(
  axes: mpl_axes.Axes,
  by_images: Sequence[recognition.Recognition],
) -> None:
  """Draws the detection error trade-off of the largest gallery.

  Args:
    axes: The panel.
    by_images: As in `draw_sizes`.
  """
  keys = []
  for part in by_images:
    keys += _draw_rates(
      axes,
      [x.fpir.value for x in part.det],
      [x.fnir for x in part.det],
      len(keys),
      f"{part.sizes[-1].size:,} people, {_name(part)}",
    )
  figures.decorate(
    axes,
    title="Strangers accepted, people missed (DET)",
    x_label="FPIR (strangers' images accepted)",
    y_label="FNIR (enrolled people's\nimages not found)",
    keys=keys,
  )
  figures.set_rates(axes)
  lowest = min(x.fpir.value for part in by_images for x in part.det)
  axes.set_xlim(lowest / 1.4, 1.4)
  axes.xaxis.set_major_formatter("{x:g}")
