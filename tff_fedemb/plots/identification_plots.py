"""Pictures of identification: rates over the gallery's size, and DET curves.

A probe is identified if the most similar enrolled person is the right one and
similar enough. FPIR and FNIR are the false positive and false negative
identification rates.
"""

from collections.abc import Sequence

from matplotlib import axes as mpl_axes

from tff_fedemb.evaluation import rates as rates_lib
from tff_fedemb.evaluation import recognition
from tff_fedemb.plots import figures


def _name(part: recognition.Recognition) -> str:
  """Says how many images of each person are enrolled, for a legend."""
  images = "images" if part.images > 1 else "image"
  return f"{part.images} {images} each"


def _draw_rates(
  axes: mpl_axes.Axes,
  places: Sequence[float],
  rates: Sequence[rates_lib.Rate],
  index: int,
  label: str,
) -> list:
  """Draws a line in the band of its intervals; returns its key.

  `places` are the x values `[n]` of the rates; `index` chooses the style.
  """
  style = figures.style_of(index)
  low = [rate.low for rate in rates]
  high = [rate.high for rate in rates]
  axes.fill_between(places, low, high, color=style["color"], alpha=0.15)
  values = [rate.value for rate in rates]
  return axes.plot(places, values, label=label, **style)


def draw_sizes(
  axes: mpl_axes.Axes,
  by_images: Sequence[recognition.Recognition],
) -> None:
  """Draws shares of images found over the size of the gallery.

  Each number of enrolled images has two curves: the nearest person is right;
  and the nearest is right and accepted, at the threshold that rejects most
  strangers. Bands are the rates' intervals.

  Args:
    axes: The panel.
    by_images: Results by number of enrolled images, at least one. The second
      curve leaves out sizes whose `fnir` is None.
  """
  keys = []
  all_sizes = []
  rejected = f"{1 - recognition.FALSE_POSITIVE_RATE:.0%} of strangers rejected"
  for part in by_images:
    sizes = [gallery.size for gallery in part.sizes]
    all_sizes += sizes
    ranked = [gallery.rank_one for gallery in part.sizes]
    label = f"nearest is right, {_name(part)}"
    keys += _draw_rates(axes, sizes, ranked, len(keys), label)
    sizes, found = [], []
    for gallery in part.sizes:
      if gallery.fnir is not None:
        sizes.append(gallery.size)
        found.append(gallery.fnir.complement())
    label = f"and {rejected}, {_name(part)}"
    keys += _draw_rates(axes, sizes, found, len(keys), label)
  figures.decorate(
    axes,
    title="How many people it tells apart",
    x_label="people in the gallery",
    y_label="share of their images found",
    keys=keys,
  )
  figures.set_rates(axes)
  figures.set_logarithmic(axes.xaxis, all_sizes, formatter="{x:,.0f}")


def draw_det(
  axes: mpl_axes.Axes,
  by_images: Sequence[recognition.Recognition],
) -> None:
  """Draws the detection error trade-off of the largest gallery.

  Args:
    axes: The panel; both rates are in [0, 1], FPIR on a logarithmic axis.
    by_images: As in `draw_sizes`, with at least one point of `det`.
  """
  keys = []
  all_rates = []
  for part in by_images:
    accepted = [point.fpir.value for point in part.det]
    all_rates += accepted
    missed = [point.fnir for point in part.det]
    label = f"{part.sizes[-1].size:,} people, {_name(part)}"
    keys += _draw_rates(axes, accepted, missed, len(keys), label)
  figures.decorate(
    axes,
    title="Strangers accepted, people missed (DET)",
    x_label="FPIR (strangers' images accepted)",
    y_label="FNIR (enrolled people's\nimages not found)",
    keys=keys,
  )
  figures.set_rates(axes)
  axes.set_xlim(min(all_rates) / 1.4, 1.4)
  axes.xaxis.set_major_formatter("{x:g}")
