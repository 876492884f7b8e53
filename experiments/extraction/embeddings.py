"""What may stand for an image when there is no model: data-independent maps.

They need no data to be made, so they cost no privacy and tell nothing of the
images that they are applied to.
"""

from collections.abc import Callable
import functools

import numpy as np

EMBEDDINGS = ("pixels", "random_features")

_GAMMA_OF_DIM = 16.0


def _embed_pixels(images: np.ndarray, largest_value: int) -> np.ndarray:
  """Pixels in [0, 1], float32 `[b, height * width * channels]`."""
  flat = images.reshape(len(images), -1)
  return flat.astype(np.float32) / np.float32(largest_value)


def create_embedding(
  name: str,
  largest_value: int,
  *,
  num_features: int,
  gamma: float | None,
  seed: int | np.random.SeedSequence,
) -> Callable[[np.ndarray], np.ndarray]:
  """Creates one of `EMBEDDINGS`: pixels, or random Fourier features of them.

  Rahimi and Recht, "Random Features for Large-Scale Kernel Machines", NIPS
  2007: inner products of features are, in expectation, exp(-gamma |x - y|^2).
  A cosine and a sine for each frequency give vectors of norm 1 exactly.

  Args:
    name: Which one.
    largest_value: That a pixel may have.
    num_features: Numbers of a vector of random features, even.
    gamma: Of the kernel of pixels in [0, 1]; `None` for 16 over their number.
    seed: Of the frequencies: the same for the same map.

  Returns:
    From uint8 images to embeddings, float32 `[b, dim]`.
  """
  if name == "pixels":
    return lambda images: _embed_pixels(images, largest_value)

  @functools.cache
  def draw_frequencies(dim):
    scale = np.sqrt(2 * (_GAMMA_OF_DIM / dim if gamma is None else gamma))
    return scale * np.random.default_rng(seed).normal(
      size=(dim, num_features // 2)
    )

  def embed(images):
    pixels = _embed_pixels(images, largest_value)
    angles = pixels @ draw_frequencies(pixels.shape[1])
    return np.concatenate(
      [np.cos(angles), np.sin(angles)], axis=1, dtype=np.float32
    ) / np.float32(np.sqrt(num_features // 2))

  return embed
