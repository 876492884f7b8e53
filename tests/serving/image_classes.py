"""Images that are alike within a class, in memory and in folders."""

import numpy as np
from PIL import Image


def draw(num_classes, images_of_class, shape, *, noise):
  """Draws images uint8 `[classes, images, height, width]`."""
  generator = np.random.default_rng(0)
  base = generator.uniform(60, 190, (num_classes, 1, *shape))
  noise = generator.normal(0, noise, (num_classes, images_of_class, *shape))
  return np.clip(base + noise, 0, 255).astype(np.uint8)


def write(directory, classes, suffixes=("png",)):
  """Writes images to `classNN/N.png`, by turns with suffixes; returns where."""
  for name, images in enumerate(classes):
    folder = directory / f"class{name:02}"
    folder.mkdir(parents=True)
    for number, image in enumerate(images):
      suffix = suffixes[number % len(suffixes)]
      Image.fromarray(image).save(folder / f"{number}.{suffix}")
  return directory
