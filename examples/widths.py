"""A backbone of your own in three widths.

  --backbone=examples.widths:WIDE

The shipped backbone `strided` with half as many channels, as many, and twice as
many: what a private classifier gains by a larger network.
"""

import functools

from tff_fedemb.models import pooled

NARROW = functools.partial(
  pooled.create_strided, convolutions=((6, 5), (12, 3), (24, 3)), name="narrow"
)
MIDDLE = functools.partial(pooled.create_strided, name="middle")
WIDE = functools.partial(
  pooled.create_strided, convolutions=((24, 5), (48, 3), (96, 3)), name="wide"
)
