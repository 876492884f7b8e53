"""Small files of every kind of image, by name, as bytes.

Pillow writes few of PNG's colour types and depths, so these are put together
here. Where Pillow reads one wrongly, its picture is given beside it.
"""

import io
import struct
import zlib

import numpy as np
from PIL import Image

HEIGHT, WIDTH = 13, 11
# By PNG's colour type.
_NUM_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
# Starts and steps of the passes of Adam7.
_PASSES = (
  *((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4)),
  *((2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)),
)


def _draw(levels, num_channels):
  """Every value below `levels` somewhere, no two rows or columns the same."""
  shape = (HEIGHT, WIDTH, num_channels)
  samples = np.random.default_rng(num_channels).integers(0, levels, shape)
  return samples.astype(np.uint16)


RGBA = _draw(256, 4).astype(np.uint8)
RGB = RGBA[..., :3]
GREY = RGBA[..., 0]
_SMOOTH = np.asarray(
  Image.fromarray(RGB[:4, :4]).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
)
_TAGS = Image.Exif()
_TAGS[0x0112] = 3  # Half a turn.
# EXIF after its mark, as Pillow writes it.
_EXIF = _TAGS.tobytes()


def chunk(name, content):
  """A part of a PNG."""
  check = struct.pack(">I", zlib.crc32(name + content))
  return struct.pack(">I", len(content)) + name + content + check


def _pack(samples, depth):
  """Rows of samples `[h, w, c]`, each after the byte of its filter."""
  rows = samples.reshape(len(samples), -1)
  if depth == 16:
    rows = rows.astype(">u2").view(np.uint8)
  else:
    bits = np.unpackbits(rows.astype(np.uint8)[..., np.newaxis], axis=-1)
    bits = bits[..., 8 - depth :].reshape(len(rows), -1)
    rows = np.packbits(bits, axis=-1)
  return np.pad(rows, ((0, 0), (1, 0))).tobytes()


def write_png(
  samples, depth, color_type, *, before=b"", after=b"", adam7=False
):
  """A PNG of samples `[h, w, c]`, with parts before and after the pixels."""
  height, width, _ = samples.shape
  header = (width, height, depth, color_type, 0, 0, int(adam7))
  passes = [samples]
  if adam7:
    passes = [samples[y::dy, x::dx] for y, x, dy, dx in _PASSES]
  pixels = b"".join(_pack(piece, depth) for piece in passes if piece.size)
  return b"".join(
    [
      b"\x89PNG\r\n\x1a\n",
      chunk(b"IHDR", struct.pack(">IIBBBBB", *header)),
      before,
      chunk(b"IDAT", zlib.compress(pixels)),
      after,
      chunk(b"IEND", b""),
    ]
  )


def save(pixels, form, mode=None, **options):
  """A file as Pillow writes it, of an array or a picture."""
  image = pixels
  if isinstance(pixels, np.ndarray):
    image = Image.fromarray(pixels)
  content = io.BytesIO()
  image.convert(mode or image.mode).save(content, form, **options)
  return content.getvalue()


def _scale(samples, depth):
  """Samples of 8 bits."""
  if depth == 16:
    return (samples >> 8).astype(np.uint8)
  return (samples * (255 // (2**depth - 1))).astype(np.uint8)


def _pngs():
  """Yields a name, the file, and RGBA `[h, w, 4]` of it."""
  for color_type, depths in {
    0: (1, 2, 4, 8, 16),
    2: (8, 16),
    3: (1, 2, 4, 8),
    4: (8, 16),
    6: (8, 16),
  }.items():
    for depth in depths:
      for has_key in (False, True)[: 1 + (color_type < 4)]:
        yield _png(color_type, depth, has_key)


def _png(color_type, depth, has_key, **options):
  num_channels = _NUM_CHANNELS[color_type]
  samples = _draw(2**depth, num_channels)
  parts, key = [], samples[2, 3]
  colors = _scale(samples, depth)
  alpha = np.full([HEIGHT, WIDTH, 1], 255, np.uint8)
  if color_type == 3:
    palette = RGBA.reshape(-1, 4)[np.arange(2**depth) % (HEIGHT * WIDTH)]
    colors = palette[samples[..., 0], :3]
    parts.append(chunk(b"PLTE", palette[:, :3].tobytes()))
    if has_key:
      parts.append(chunk(b"tRNS", palette[:, 3].tobytes()))
      alpha = palette[samples[..., 0], 3:]
  elif has_key:
    parts.append(chunk(b"tRNS", key.astype(">u2").tobytes()))
    alpha[(samples == key).all(axis=-1)] = 0
  elif color_type > 3:
    colors, alpha = colors[..., :-1], colors[..., -1:]
  if colors.shape[-1] == 1:
    colors = colors.repeat(3, -1)
  kind = {0: "grey", 2: "RGB", 3: "palette", 4: "grey, alpha", 6: "RGBA"}
  words = [f"PNG {kind[color_type]} of {depth}"]
  words += ["with transparency"] * has_key + list(options)
  content = write_png(
    samples, depth, color_type, before=b"".join(parts), **options
  )
  return " ".join(words), content, np.dstack([colors, alpha])


def _late_pngs():
  """Yields names and PNGs whose EXIF is where it is rarely looked for."""
  block = chunk(b"eXIf", _EXIF[6:])
  text = chunk(b"tEXt", b"Comment\0about IDAT, eXIf and tRNS")
  for name, parts in {
    "EXIF first": {"before": block},
    "EXIF after the pixels": {"after": block},
    "EXIF after a text that says IDAT": {"before": text + block},
    "EXIF with the mark of JPEG": {"before": chunk(b"eXIf", _EXIF)},
    "a text that says EXIF": {"before": text},
  }.items():
    yield f"PNG, {name}", write_png(_SMOOTH, 8, 2, **parts)


def _segment(marker, content):
  size = struct.pack(">H", 2 + len(content))
  return b"\xff" + bytes([marker]) + size + content


def _late_jpegs():
  """Yields names and JPEGs whose EXIF is where it is rarely looked for."""
  plain = save(_SMOOTH, "JPEG", quality=95)
  turned = _segment(0xE1, _EXIF)
  comment = _segment(0xFE, b"has " + _EXIF.replace(b"\3\0", b"\6\0"))
  profile = _segment(0xE2, b"\xff\xd9" * 32766) * 5
  for where, before in {
    "first": turned,
    "after a comment that says Exif": comment + turned,
    "after 320 kB of profile": profile + turned,
    "after bytes of filling": b"\xff" * 3 + turned,
    "in a comment alone": comment,
  }.items():
    yield f"JPEG, EXIF {where}", plain[:2] + before + plain[2:]


def _others():
  """Yields names and files that Pillow reads right."""
  for mode in ("L", "RGB", "CMYK"):
    yield f"JPEG {mode}", save(_SMOOTH, "JPEG", mode, quality=95)
  place = (cmyk := save(_SMOOTH, "JPEG", "CMYK")).index(b"\xff\xee")
  yield "JPEG CMYK without a mark", cmyk[:place] + cmyk[place + 16 :]
  for words, options in {
    "4:4:4": {"subsampling": 0},
    "progressive": {"progressive": True},
    "RGB kept": {"keep_rgb": True},
  }.items():
    yield f"JPEG {words}", save(_SMOOTH, "JPEG", quality=95, **options)
  colors = Image.fromarray(RGB).quantize(7)
  gif = save(colors, "GIF")
  yield "GIF", gif
  yield "GIF grey", save(GREY, "GIF")
  yield "GIF in one pass", save(colors, "GIF", interlace=0)
  clear = {"transparency": 3}
  yield "GIF transparent", save(colors, "GIF", **clear)
  yield (
    "GIF transparent, with a comment",
    save(colors, "GIF", comment=b"\x21\xf9\x04\x01\0\0\2\0," * 40, **clear),
  )
  more = [Image.fromarray(RGB[::-1]), Image.fromarray(RGB[:, ::-1])]
  moves = {"save_all": True, "append_images": more}
  yield "GIF moving", save(colors, "GIF", **moves)
  # The table of all becomes the picture's own.
  size = 3 << 1 + (gif[10] & 7)
  place = gif.index(b",", 13 + size)
  table, frame = gif[13 : 13 + size], bytearray(gif[place : place + 10])
  frame[9] = gif[10] & 7 | 0x80
  control = b"\x21\xf9\x04\x01\0\0\2\0"
  start = gif[:10] + bytes([gif[10] & 0x7F]) + gif[11:13] + control
  yield (
    "GIF transparent, own table",
    start + bytes(frame) + table + gif[place + 10 :],
  )
  part = save(colors.crop((0, 0, WIDTH - 2, HEIGHT)), "GIF")
  yield "GIF in a larger one", gif[:10] + part[10:]
  for mode in ("1", "L", "RGB", "RGBA"):
    yield f"BMP {mode}", save(RGBA, "BMP", mode)
  yield "BMP palette", save(colors, "BMP")
  yield "WebP", save(_SMOOTH, "WEBP")
  yield "WebP lossless", save(RGB, "WEBP", lossless=True)
  yield "WebP RGBA", save(RGBA, "WEBP", lossless=True)
  yield "WebP RGBA, lossy", save(RGBA, "WEBP")
  yield "WebP EXIF", save(RGB, "WEBP", lossless=True, exif=_EXIF)
  yield (
    "WebP EXIF after a profile",
    save(RGB, "WEBP", lossless=True, exif=_EXIF, icc_profile=b"EXIF\1\2" * 99),
  )
  yield "WebP moving", save(RGB, "WEBP", lossless=True, **moves)
  for mode in ("1", "L", "P", "RGB", "RGBA", "CMYK"):
    yield f"TIFF {mode}", save(RGBA, "TIFF", mode)
  yield "TIFF EXIF", save(RGB, "TIFF", exif=_EXIF)
  for mode in ("1", "L", "RGB"):
    yield f"PPM {mode}", save(RGBA, "PPM", mode)


def list_kinds():
  """Names to files, and RGBA where it is known without Pillow."""
  kinds = {name: (content, pixels) for name, content, pixels in _pngs()}
  for arguments in ((3, 4, False), (6, 8, False), (0, 16, True)):
    name, content, pixels = _png(*arguments, adam7=True)
    kinds[name] = (content, pixels)
  wide = _draw(1 << 16, 1)[..., 0]
  pixels = np.dstack([_scale(wide, 16)] * 3 + [np.full_like(GREY, 255)])
  for form in ("TIFF", "PPM"):
    kinds[f"{form} of 16"] = (save(wide, form), pixels)
  others = [*_others(), *_late_pngs(), *_late_jpegs()]
  return kinds | {name: (content, None) for name, content in others}
