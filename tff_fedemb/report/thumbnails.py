"""Small pictures for a page, each of which is in it once."""

import base64
import dataclasses
import io

import numpy as np
from PIL import Image

_MAX_SIDE = 64
_JPEG_QUALITY = 82


@dataclasses.dataclass(frozen=True)
class Thumbnail:
  """A picture; `data` is its data URI."""

  identifier: str
  width: int
  height: int
  data: str


def _encode(image: Image.Image) -> str:
  """The smaller of PNG and JPEG: drawings are small as PNG, photos are not."""
  encoded = {}
  for kind in ("png", "jpeg"):
    buffer = io.BytesIO()
    # PNG has no quality to give up, and takes no notice of it.
    image.save(buffer, format=kind, optimize=True, quality=_JPEG_QUALITY)
    encoded[kind] = buffer.getvalue()
  kind = min(encoded, key=lambda name: len(encoded[name]))
  return f"data:image/{kind};base64,{base64.b64encode(encoded[kind]).decode()}"


class Thumbnails:
  """Pictures of a page by what is in them: runs may show the same ones."""

  def __init__(self):
    self._by_data: dict[str, Thumbnail] = {}

  def add(self, image: np.ndarray) -> str:
    """Takes an image, uint8 `[height, width, channels]`; returns its name."""
    picture = Image.fromarray(image[..., 0] if image.shape[2] == 1 else image)
    # Keeps the proportions, and what is small as it is.
    picture.thumbnail((_MAX_SIDE, _MAX_SIDE))
    data = _encode(picture)
    new = Thumbnail(f"t{len(self._by_data)}", *picture.size, data)
    return self._by_data.setdefault(data, new).identifier

  @property
  def all(self) -> list[Thumbnail]:
    """Those that were taken."""
    return list(self._by_data.values())
