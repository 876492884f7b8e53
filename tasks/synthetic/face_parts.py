"""Parts of a drawn face: hair, neck, ears, skin, eyes, nose, mouth, glasses.

Shapes, given by the distances to their edges, are painted on images float32
`[3, num, side, side]` in place. See `faces` for what changes between
people, and between images of a person.
"""

from collections.abc import Mapping
import dataclasses

import numpy as np

from tasks.synthetic import drawing

IMAGE_SIZE = 112
MARKS_SIZE = 96

# Pixels in half the height of a head.
SCALE = 41.0


@dataclasses.dataclass(frozen=True)
class Person:
  """What makes a person; colours are float32 `[3]` in [0, 255].

  Attributes:
    shape: Values by name; `faces` says which.
    skin: Colour of the skin.
    hair: Colour of the hair.
    iris: Colour of the eyes.
    beard: Strength of moustache and beard, each 0 for none.
    glasses: Half width and half height of a glass, thickness of the frame and
      its squareness; none for no glasses.
    frame: Colour of the frame.
    marks: float32 `[side, side]`, how dark moles and freckles make the surface.
  """

  shape: Mapping[str, float]
  skin: np.ndarray
  hair: np.ndarray
  iris: np.ndarray
  beard: tuple[float, ...]
  glasses: tuple[float, ...] | None
  frame: np.ndarray
  marks: np.ndarray


def _cover(distance: np.ndarray) -> np.ndarray:
  return drawing.cover_of(distance, SCALE)


class View:
  """A person in some images, and where each pixel lies, `[num, side, side]`.

  Attributes:
    person: Who.
    scene: Values `[num, 1, 1]` of what changes from image to image.
    across: In the plane of the image, with the head upright.
    down: The same.
    reach: Distance from the middle of the head, 1 on its outline.
    normal: Across and towards the viewer, of the head's surface.
    u: Place on the surface, from ear to ear.
    v: Place on the surface, from top to chin.
    front: Whether the surface is the front half of the head, in [0, 1].
  """

  def __init__(self, person: Person, scene: Mapping[str, np.ndarray]):
    """Turns the head and finds what each pixel shows of it."""
    self.person, self.scene = person, scene
    shape = person.shape
    pixels = np.arange(IMAGE_SIZE, dtype=np.float32) - (IMAGE_SIZE - 1) / 2
    scale = SCALE * scene["zoom"]
    x = (pixels - scene["left"]) / scale
    y = (pixels[:, np.newaxis] - 6.0 - scene["down"]) / scale
    across, down = drawing.rotate(x, y, scene["roll"])
    low = np.clip(down, 0.0, 1.0)
    bulge = 1.0 + shape["jaw"] * low * low
    width = shape["width"] * (bulge + shape["cheek"] * np.sin(np.pi * low))
    flat = across / width
    squared = flat * flat + down * down
    near = np.sqrt(np.clip(1.0 - squared, 0.0, 1.0))
    self.across, self.down, self.reach = across, down, np.sqrt(squared)
    self.normal = flat, near
    depth, self.u = drawing.rotate(near, flat, scene["yaw"])
    depth, self.v = drawing.rotate(depth, down, scene["pitch"])
    self.front = np.clip(depth * 6.0 + 1.0, 0.0, 1.0)


def paint_behind_face(view: View, image, clothes) -> np.ndarray:
  """Paints hair, neck, clothes and ears, and returns where they are."""
  person, shape, scene = view.person, view.person.shape, view.scene
  across, down = view.across, view.down
  # The back of the head turns the other way than its front.
  behind = across + 0.14 * np.sin(scene["yaw"])
  sideways = np.abs(behind)
  wide, tall = shape["width"] + shape["side"], 1.0 + shape["top"]
  hair = sideways - wide * (1 - 0.1 * down)
  hair = np.maximum(hair, down - shape["length"])
  hair = np.where(down < 0, drawing.ellipse(behind, down, wide, tall), hair)
  if shape["curl"] > 0.3:
    waves = shape["hair_waves"] * (1.2 + shape["curl"] / 2)
    bumps = np.sin(waves * behind + 1) * np.sin(waves * down)
    hair += 0.022 * shape["curl"] * bumps
  hair = _cover(hair)
  image[:] = person.hair[:, np.newaxis, np.newaxis, np.newaxis] * 0.9
  neck = sideways - shape["neck"] * shape["width"]
  neck = _cover(np.maximum(neck, 0.5 - down))
  drawing.paint(image, neck, person.skin * 0.75)
  shoulders = _cover(1.12 + 0.5 * across * across - down)
  drawing.paint(image, shoulders, clothes)
  cover = np.maximum(hair, np.maximum(neck, shoulders))
  if shape["length"] > 1.0:
    # In front of the shoulders.
    hair *= sideways > 0.8 * shape["width"]
    drawing.paint(image, hair, person.hair * 0.9)
  if shape["length"] > 0.4:
    return cover
  size = shape["ear_size"]
  for side in (-1.0, 1.0):
    turned = side * np.sin(scene["yaw"])
    reach = (shape["width"] + shape["ear_reach"]) * (1 - 0.25 * turned)
    low = down - 0.03 + scene["pitch"] * 0.4
    ear = drawing.ellipse(across - side * reach, low, 0.55 * size, size)
    rim = _cover(np.abs(ear + 0.02) - 0.025)
    ear = _cover(ear)
    drawing.paint(image, ear, person.skin * 0.78)
    drawing.paint(image, rim, person.skin * 0.95)
    cover = np.maximum(cover, np.maximum(ear, rim))
  return cover


def paint_face(view: View, image: np.ndarray) -> np.ndarray:
  """Paints the face with all that is on it, and returns where the head is."""
  image[:] = view.person.skin[:, np.newaxis, np.newaxis, np.newaxis]
  _paint_skin(view, image)
  _paint_nose(view, image)
  _paint_beard_and_mouth(view, image)
  _paint_eyes(view, image)
  head = _cover((view.reach - 1.0) * view.person.shape["width"])
  _paint_front_hair(view, image, head)
  if view.person.glasses:
    _paint_glasses(view, image)
  return head


def _paint_skin(view: View, image: np.ndarray) -> None:
  person, shape = view.person, view.person.shape
  cheeks = (np.abs(view.u) - 0.45) ** 2 + (view.v - 0.3) ** 2
  cheeks = np.exp(cheeks * -14) * shape["blush"]
  drawing.paint(image, cheeks, (200, 70, 70))
  places = [
    np.clip((place + 1) * (MARKS_SIZE / 2), 0, MARKS_SIZE - 1).astype(np.int32)
    for place in (view.v, view.u)
  ]
  drawing.paint(image, person.marks[tuple(places)], person.skin * 0.4)


def _paint_eyes(view: View, image: np.ndarray) -> None:
  person, shape, scene = view.person, view.person.shape, view.scene
  wide = shape["eye_width"]
  tall = shape["eye_opening"] * scene["lids_open"]
  for side in (-1.0, 1.0):
    u = side * view.u - shape["eye_distance"]
    v = view.v - shape["eye_height"] + shape["eye_tilt"] * u
    lens = 1.0 - (u / wide) ** 2
    # Both lids are arcs from corner to corner, the upper one higher.
    eye = np.maximum(-1.15 * tall * lens - v, v - 0.85 * tall * lens)
    crease = np.abs(v + (1.15 * tall + 0.045) * np.maximum(lens, 0)) - 0.014
    crease = _cover(np.maximum(crease, -lens * wide))
    drawing.paint(image, crease * (shape["lid"] * 0.8), person.skin * 0.55)
    white = _cover(eye) * view.front
    drawing.paint(image, white, (235, 232, 228))
    iris = np.sqrt((u - side * scene["gaze"]) ** 2 + (v / 0.9) ** 2)
    iris -= shape["iris"]
    pupil = _cover(iris + 0.55 * shape["iris"])
    drawing.paint(image, _cover(iris) * white, person.iris)
    drawing.paint(image, pupil * white, 12.0)
    lashes = _cover(np.abs(eye) - 0.012) * (v < 0.25 * tall)
    strength = 0.5 + 0.5 * shape["lid"]
    drawing.paint(image, lashes * strength, person.hair * 0.3)

    u = u - shape["brow_inner"]
    middle = shape["eye_height"] - shape["brow_gap"] - scene["brow_raise"]
    middle = middle + shape["brow_arch"] * u * u - shape["brow_tilt"] * u
    along = 1.0 - (u / shape["brow_width"]) ** 2
    thick = shape["brow_thickness"] * np.maximum(along, 0) ** 0.5
    brow = _cover(np.abs(view.v - middle) - thick) * (along > 0)
    drawing.paint(image, brow * (0.85 * view.front), person.hair * 0.6)


def _paint_nose(view: View, image: np.ndarray) -> None:
  person, shape, scene = view.person, view.person.shape, view.scene
  u, v = view.u, view.v
  tip, wide = shape["nose_tip"], shape["nose_width"]
  # The nose stands out: it leans with the head, and light falls on one side.
  top = shape["eye_height"] - 0.05
  along = np.clip((v - top) / (tip - top), 0, 1)
  lean = u - 0.22 * scene["yaw"] * along
  bridge = shape["nose_bridge"]
  across = lean / (bridge + (wide * 0.75 - bridge) * along**3)
  ridge = across * np.exp(-across * across)
  ridge *= np.clip((v - top) * 8, 0, 1) * np.clip((tip + 0.05 - v) * 12, 0, 1)
  ridge *= shape["nose_strength"] * (scene["light_x"] + 0.15)
  image *= 1.0 + np.clip(ridge, -0.6, 0.25)
  bulb = drawing.ellipse(lean, v - tip, wide, 0.09)
  under = _cover(np.abs(bulb) - 0.018) * np.clip((v - tip + 0.03) * 18, 0, 1)
  drawing.paint(image, under * shape["nose_strength"], person.skin * 0.5)
  sideways = np.abs(lean) - 0.5 * wide
  nostrils = drawing.ellipse(sideways, v - tip - 0.06, 0.04, 0.022)
  drawing.paint(image, _cover(nostrils) * 0.8, person.skin * 0.25)


def _paint_beard_and_mouth(view: View, image: np.ndarray) -> None:
  person, shape, scene = view.person, view.person.shape, view.scene
  u, v = view.u, view.v
  mouth = shape["nose_tip"] + shape["mouth_gap"]
  moustache, beard = person.beard
  if moustache:
    wide = 0.85 * shape["mouth_width"]
    hair = drawing.ellipse(u, v - mouth + 0.08, wide, 0.065)
    drawing.paint(image, _cover(hair) * moustache, person.hair * 0.75)
  if beard:
    line = mouth + 0.13 - 0.75 * u * u
    hair = np.clip((v - line) * 14, 0, 1) * view.front
    drawing.paint(image, hair * beard, person.hair * 0.75)

  half = shape["mouth_width"] * (1 + 0.12 * scene["smile"])
  arc = (u / half) ** 2
  bend = 0.055 * (scene["smile"] + 2 * shape["mouth_bend"])
  line = mouth + bend * (0.5 - arc)
  opened = np.maximum(scene["mouth_open"], 0)
  lens = np.maximum(1.0 - arc, 0)
  bow = 1.0 - 0.3 * np.exp(-((u / (0.22 * half)) ** 2))
  upper = line - shape["upper_lip"] * lens**0.7 * bow - opened * 0.3 * lens - v
  lower = v - line - shape["lower_lip"] * lens**0.7 - opened * lens
  lips = _cover(np.maximum(upper, lower)) * (lens > 0)
  redness = np.float32(shape["lip_redness"])
  lip = person.skin * (0.78, 0.62, 0.62) * (1 - redness)
  drawing.paint(image, lips * 0.9, lip + redness * np.array((165, 60, 70)))
  upper = line - 0.008 - opened * 0.3 * lens - v
  lower = v - line - 0.008 - opened * lens
  gap = _cover(np.maximum(upper, lower)) * (lens > 0.02)
  drawing.paint(image, gap, (55, 20, 22))
  teeth = gap * (opened > 0.02) * np.clip((line + 0.3 * opened - v) * 40, 0, 1)
  drawing.paint(image, teeth, (228, 222, 212))


def _paint_front_hair(view: View, image: np.ndarray, head: np.ndarray) -> None:
  person, shape, u = view.person, view.person.shape, view.u
  squared = u * u
  line = shape["sideburn"] * squared * squared - shape["hairline"]
  line += shape["hair_lean"] * u * (1 - np.minimum(squared, 1))
  parted = (u - shape["hair_part"]) / 0.16
  line -= shape["hair_notch"] * np.exp(-parted * parted)
  waves = shape["hair_waves"]
  line += (0.012 + 0.02 * shape["curl"]) * np.sin(2.5 * waves * u)
  hair = _cover(view.v - line) * head
  streaks = np.sin(waves * (3 * view.across + shape["hair_lean"] * view.down))
  if shape["curl"] > 0.3:
    streaks *= np.sin(1.6 * waves * view.down + 2 * streaks)
  drawing.paint(image, hair, person.hair)
  image *= hair * shape["hair_streaks"] * streaks + 1.0


def _paint_glasses(view: View, image: np.ndarray) -> None:
  person, shape = view.person, view.person.shape
  wide, tall, thick, square = person.glasses
  u = np.abs(view.u) - max(shape["eye_distance"], wide + 0.05)
  v = view.v - shape["eye_height"] - 0.02
  rounded = drawing.ellipse(u, v, wide, tall)
  boxed = np.maximum(np.abs(u) - wide, np.abs(v) - tall)
  glass = square * boxed + (1 - square) * rounded
  bar = np.maximum(np.abs(v + 0.03) - thick, -glass)
  rim = np.minimum(np.abs(glass) - thick, bar)
  drawing.paint(image, _cover(rim) * view.front, person.frame)


def light(view: View, image: np.ndarray) -> None:
  """Shades what is in front of the background."""
  scene = view.scene
  x, y, z = scene["light_x"], scene["light_y"], scene["light_z"]
  length = np.sqrt(x * x + y * y + z * z)
  flat, near = view.normal
  bright = flat * x + view.down * y
  # What stands off the head is lit like the rim that it is closest to.
  bright /= np.maximum(view.reach, 1.0)
  bright = np.clip((bright + near * z) / length, -0.2, 1.0)
  image *= bright * (1.3 * (1.0 - scene["ambient"])) + scene["ambient"]
