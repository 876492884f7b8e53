"""What may stand for an image when there is no model: data-independent maps.

They need no data to be made, so they cost no privacy and tell nothing of the
images that they are applied to.
"""

from collections.abc import Callable

import numpy as np

EMBEDDINGS = ("pixels", "random_features")

_GAMMA_OF_DIM = 16.0


def embed_pixels(images: np.ndarray, largest_value: int) -> np.ndarray:
  """Pixels in [0, 1], float32 `[b, height * width * channels]`."""
  flat = images.reshape(len(images), -1)
  return flat.astype(np.float32) / np.float32(largest_value)


class RandomFeatures:
  """Random Fourier features of the Gaussian kernel of pixels.

  Rahimi and Recht, "Random Features for Large-Scale Kernel Machines", NIPS
  2007: inner products of features are, in expectation, exp(-gamma |x - y|^2).
  A cosine and a sine for each frequency give vectors of norm 1 exactly.
  """

  def __init__(
    self,
    num_features: int,
    largest_value: int,
    *,
    gamma: float | None,
    seed: int | np.random.SeedSequence,
  ):
    """Initialises the map.

    Args:
      num_features: Numbers of a feature vector, even.
      largest_value: That a pixel may have.
      gamma: Of the kernel of pixels in [0, 1]; `None` for 16 over their number.
      seed: Of the frequencies: the same for the same map.
    """
    self._num_frequencies = num_features // 2
    self._largest_value = largest_value
    self._gamma = gamma
    self._seed = seed
    self._frequencies: np.ndarray | None = None

  def embed(self, images: np.ndarray) -> np.ndarray:
    """From uint8 images to float32 `[b, num_features]`."""
    pixels = embed_pixels(images, self._largest_value)
    if self._frequencies is None:
      dim = pixels.shape[1]
      gamma = _GAMMA_OF_DIM / dim if self._gamma is None else self._gamma
      self._frequencies = np.sqrt(2 * gamma) * np.random.default_rng(
        self._seed
      ).normal(size=(dim, self._num_frequencies))
    angles = pixels @ self._frequencies
    return np.concatenate(
      [np.cos(angles), np.sin(angles)], axis=1, dtype=np.float32
    ) / np.float32(np.sqrt(self._num_frequencies))


def create_embedding(
  name: str,
  largest_value: int,
  *,
  num_features: int,
  gamma: float | None,
  seed: int | np.random.SeedSequence,
) -> Callable[[np.ndarray], np.ndarray]:
  """Creates one of `EMBEDDINGS`.

  Args:
    name: Which one.
    largest_value: That a pixel may have.
    num_features: As of `RandomFeatures`.
    gamma: As of `RandomFeatures`.
    seed: As of `RandomFeatures`.

  Returns:
    From uint8 images to embeddings.
  """
  if name == "random_features":
    return RandomFeatures(
      num_features, largest_value, gamma=gamma, seed=seed
    ).embed
  return lambda images: embed_pixels(images, largest_value)
