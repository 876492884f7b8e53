"""Faces of made-up people, drawn with NumPy.

Made to tell people apart by, as DigiFace-1M is (Bae et al., "DigiFace-1M: 1
Million Digital Face Images for Face Recognition", WACV 2023, section 3): what
belongs to a person (shape of the head and its features, hair, colours, marks,
glasses) stays the same, what does not (pose, expression, light, background)
changes from image to image. A head is an ellipsoid whose surface carries the
features, so that a turn of the head moves them against its outline. Background
and light outweigh skin and hair in the mean colour of an image.
"""

import numpy as np
from scipy import ndimage

from tasks.synthetic import drawing
from tasks.synthetic import face_parts

IMAGE_SIZE = face_parts.IMAGE_SIZE


def _read_ranges(table: str) -> dict[str, tuple[float, float]]:
  words = table.split()
  ends = zip(map(float, words[1::3]), map(float, words[2::3]), strict=True)
  return dict(zip(words[::3], ends, strict=True))


# Range of what belongs to a person, uniform. Across, a head is from -1 to 1
# times `width`; down, from -1 to 1. Positions of features are on the surface.
_PERSON = _read_ranges("""
  width           0.68  0.88    jaw             -0.3  0.12
  cheek          -0.06  0.08    eye_distance    0.31  0.46
  eye_height      -0.2     0    eye_width      0.135 0.215
  eye_opening     0.06 0.115    eye_tilt        -0.3   0.3
  iris           0.062 0.085    lid              0.2  0.75
  brow_gap        0.12  0.24    brow_width      0.16  0.26
  brow_thickness 0.016  0.06    brow_arch       -0.3   1.8
  brow_tilt       -0.3  0.22    brow_inner     -0.05  0.03
  nose_tip        0.17  0.36    nose_width       0.1  0.22
  nose_bridge     0.05   0.1    nose_strength   0.35   0.9
  mouth_gap       0.17  0.29    mouth_width      0.2  0.36
  upper_lip      0.018 0.065    lower_lip       0.03 0.085
  mouth_bend     -0.25  0.25    lip_redness      0.1   0.6
  ear_size        0.13  0.25    ear_reach          0  0.09
  neck             0.5  0.72    blush              0  0.18
  hair_part       -0.5   0.5    hair_notch         0  0.25
  hair_lean      -0.25  0.25    hair_waves         7    13
  hair_streaks    0.05  0.22
""")

# Height of the hairline, how far it comes down at the sides, how far the hair
# stands off above and beside the head, its length and its curls.
_HAIR_NAMES = ("hairline", "sideburn", "top", "side", "length", "curl")
_HAIR_STYLES = (
  ((2.00, 2.00), (0.0, 0.0), (0.00, 0.0), (0.00, 0.0), (-1.0, -1.0), (0, 0)),
  ((0.80, 0.95), (0.9, 1.1), (0.02, 0.05), (0.02, 0.06), (0.1, 0.2), (0, 0)),
  ((0.60, 0.75), (0.5, 0.7), (0.05, 0.1), (0.02, 0.05), (0.0, 0.2), (0, 0)),
  ((0.48, 0.70), (0.5, 0.8), (0.14, 0.28), (0.05, 0.1), (0.1, 0.3), (0, 0)),
  ((0.48, 0.70), (0.5, 0.8), (0.16, 0.3), (0.08, 0.14), (0.1, 0.3), (1, 1)),
  ((0.28, 0.40), (0.7, 0.9), (0.12, 0.2), (0.12, 0.18), (0.5, 1.0), (0, 0)),
  ((0.52, 0.75), (0.9, 1.2), (0.10, 0.2), (0.12, 0.25), (1.1, 1.6), (0, 0)),
  ((0.42, 0.70), (0.9, 1.1), (0.12, 0.2), (0.20, 0.3), (0.6, 0.9), (0, 1)),
  ((0.50, 0.65), (0.7, 1.0), (0.22, 0.4), (0.25, 0.4), (0.2, 0.8), (2, 2)),
)

# Colours in the way of HTML, each like its neighbours.
_SKINS = "fadcc8 f0c8aa e4b491 cd966e aa7350 82553c 5f3e2e"
_HAIRS = "191414 322118 553723 7d5532 be965a e1c387 96411e 969696 d7d4d0"
_IRISES = "3c2314 5f3c1e 786432 466e46 507da5 6e7882"

# Range of what changes from image to image, uniform.
_SCENE = _read_ranges("""
  yaw            -0.55  0.55    pitch          -0.26  0.26
  roll            -0.2   0.2    left              -4     4
  down              -3     3    zoom            0.92  1.08
  smile           -0.5   1.3    mouth_open     -0.12  0.09
  brow_raise     -0.03  0.05    lids_open       0.35  1.15
  gaze           -0.05  0.05    light_x           -1     1
  light_y         -0.9   0.5    light_z         0.35     1
  ambient         0.35   0.8    exposure        -0.5   0.2
  stripes         -0.3   0.3    stripes_x        -14    14
  stripes_y        -14    14
""")

# Images drawn at once: their layers stay in the processor's cache.
_CHUNK = 6
_GRID_SIZE = 5


def _draw_colour(generator: np.random.Generator, palette: str) -> np.ndarray:
  """A colour between two neighbours of a palette, slightly off: `[3]`."""
  colours = np.frombuffer(bytes.fromhex(palette), np.uint8).reshape(-1, 3)
  place = generator.uniform(0, len(colours) - 1)
  below = min(int(place), len(colours) - 2)
  low, high = colours[below : below + 2].astype(np.float32)
  colour = low + (place - below) * (high - low) + generator.normal(0, 5, 3)
  return np.clip(colour, 0, 255).astype(np.float32)


def _draw_marks(generator: np.random.Generator) -> np.ndarray:
  """Moles and freckles on the surface, from -1 to 1 both ways."""
  marks = np.zeros((face_parts.MARKS_SIZE, face_parts.MARKS_SIZE), np.float32)
  middle = face_parts.MARKS_SIZE / 2
  for _ in range(generator.choice(5, p=(0.35, 0.3, 0.2, 0.1, 0.05))):
    across, down = generator.uniform(-0.65, 0.65), generator.uniform(-0.6, 0.75)
    row, column = int(middle * (1 + down)), int(middle * (1 + across))
    marks[row - 1 : row + 2, column - 1 : column + 2] += 1.6
  if generator.random() < 0.15:
    number = generator.integers(40, 110)
    columns = generator.normal(0, 0.33, number)
    places = np.clip([generator.normal(0.18, 0.14, number), columns], -0.9, 0.9)
    np.add.at(marks, tuple((middle * (1 + places)).astype(int)), 1.2)
  return np.clip(ndimage.gaussian_filter(marks, 0.8), 0, 0.8)


def create_person(generator: np.random.Generator) -> face_parts.Person:
  """Creates a random person, to be drawn any number of times."""
  shape = {name: generator.uniform(*ends) for name, ends in _PERSON.items()}
  style = _HAIR_STYLES[generator.integers(len(_HAIR_STYLES))]
  for name, ends in zip(_HAIR_NAMES, style, strict=True):
    shape[name] = generator.uniform(*ends)
  bearded = generator.random() < 0.3
  glasses = None
  if generator.random() < 0.28:
    least, most = (0.19, 0.11, 0.016, 0.0), (0.27, 0.19, 0.036, 1.0)
    glasses = tuple(generator.uniform(least, most))
  return face_parts.Person(
    shape=shape,
    skin=_draw_colour(generator, _SKINS),
    hair=_draw_colour(generator, _HAIRS),
    iris=_draw_colour(generator, _IRISES),
    beard=tuple(
      float(bearded * generator.choice((0.0, middle, 0.9)))
      for middle in (0.5, 0.4)
    ),
    glasses=glasses,
    frame=generator.choice((15, 40, 70), 3).astype(np.float32),
    marks=_draw_marks(generator),
  )


def _paint_background(generator, image, scene) -> None:
  """Fills images with smooth clouds of two colours, some with stripes."""
  num = image.shape[1]
  grid = generator.uniform(-1.0, 1.0, (num, _GRID_SIZE, _GRID_SIZE))
  grid += generator.normal(0, 1, (num, 1, 1)) * np.linspace(-1, 1, _GRID_SIZE)
  at = np.linspace(0, _GRID_SIZE - 1, IMAGE_SIZE)
  # Linear interpolation as a matrix.
  rows = np.clip(1 - np.abs(at[:, np.newaxis] - np.arange(_GRID_SIZE)), 0, 1)
  clouds = (rows @ grid @ rows.T).astype(np.float32)
  line = np.linspace(0, np.pi, IMAGE_SIZE, dtype=np.float32)
  stripes = np.sin(
    line * scene["stripes_x"] + line[:, np.newaxis] * scene["stripes_y"]
  )
  # About half of the backgrounds have none.
  clouds += stripes * np.maximum(np.abs(scene["stripes"]) - 0.15, 0) * 5
  ends = generator.uniform(0, 255, (2, 3, num, 1, 1)).astype(np.float32)
  image[:] = ends[0]
  image += np.clip(clouds * 0.5 + 0.5, 0, 1) * (ends[1] - ends[0])


def draw_images(
  person: face_parts.Person, generator: np.random.Generator, num_images: int
) -> np.ndarray:
  """Draws a person in different poses, expressions, lights and places.

  The generator is the source of randomness for everything but the person.
  Returns uint8 `[num_images, 112, 112, 3]`, RGB.
  """
  images = np.empty((num_images, IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8)
  for start in range(0, num_images, _CHUNK):
    part = images[start : start + _CHUNK]
    image = np.clip(_draw_chunk(person, generator, len(part)), 0, 255)
    part[:] = image.astype(np.uint8).transpose(1, 2, 3, 0)
  return images


def _draw_chunk(
  person: face_parts.Person, generator: np.random.Generator, num: int
) -> np.ndarray:
  """Draws some images at once: float32 `[3, num, side, side]`."""
  scene = {
    name: generator.uniform(*ends, (num, 1, 1)).astype(np.float32)
    for name, ends in _SCENE.items()
  }
  view = face_parts.View(person, scene)
  image = np.empty((3, num, IMAGE_SIZE, IMAGE_SIZE), np.float32)
  _paint_background(generator, image, scene)
  clothes = generator.uniform(0, 255, (3, num, 1, 1)).astype(np.float32)
  figure, face = np.empty_like(image), np.empty_like(image)
  behind = face_parts.paint_behind_face(view, figure, clothes)
  head = face_parts.paint_face(view, face)
  drawing.paint(figure, head, face)
  face_parts.light(view, figure)
  drawing.paint(image, np.maximum(behind, head), figure)
  cast = generator.uniform(0.82, 1.18, (3, num, 1, 1)).astype(np.float32)
  image *= cast * np.exp(scene["exposure"])
  return image
