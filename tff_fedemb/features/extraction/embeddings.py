"""Maps of images to features that need no data, and so cost no privacy."""

import abc
from collections.abc import Callable
import dataclasses
import functools

import numpy as np

from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb import registry

MapFn = Callable[[np.ndarray], np.ndarray]

# Of numbers of an image: the default kernel's gamma is so many over them.
_GAMMA_OF_DIM = 16.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embedding(config.Config, abc.ABC):
  """A map of images to features."""

  @abc.abstractmethod
  def create_map(
    self, largest_value: int, generator: np.random.Generator
  ) -> MapFn:
    """Returns the map from images `[b, ...]` to float32 features `[b, d]`.

    Args:
      largest_value: That a pixel may have.
      generator: Source of what is drawn.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pixels(Embedding):
  """Pixels in [0, 1]."""

  def create_map(self, largest_value, generator):
    del generator  # Nothing is random.
    return lambda images: (
      images.reshape(len(images), -1).astype(np.float32)
      / np.float32(largest_value)
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomFeatures(Embedding):
  """Random Fourier features of pixels.

  Rahimi and Recht, "Random Features for Large-Scale Kernel Machines", NIPS
  2007. The expected inner product of two images' features is exp(-gamma |x -
  y|^2); a cosine and a sine for each frequency give vectors of norm 1 exactly.

  Attributes:
    random_features: How many random features, an even number.
    gamma: Of the random features' kernel exp(-gamma |x - y|^2) of pixels in
      [0, 1] [16 over their number].
  """

  # The frequencies of images of usual sizes fit into memory.
  random_features: int = config.field(512, minimum=2, maximum=2**16)
  # Pixels differ by 1 / 255 at least, so that a kernel of the largest gamma is
  # of equal images alone.
  gamma: float | None = config.field(None, above=0, maximum=1e6)

  def __post_init__(self):
    super().__post_init__()
    if self.random_features % 2:
      raise errors.FieldError(
        "random_features", "be even", self.random_features
      )

  def create_map(self, largest_value, generator):
    to_pixels = Pixels().create_map(largest_value, generator)
    num_frequencies = self.random_features // 2

    @functools.cache
    def draw_frequencies(dim):
      gamma = _GAMMA_OF_DIM / dim if self.gamma is None else self.gamma
      return np.sqrt(2 * gamma) * generator.normal(size=(dim, num_frequencies))

    def embed(images):
      pixels = to_pixels(images)
      angles = pixels @ draw_frequencies(pixels.shape[1])
      return np.concatenate(
        [np.cos(angles), np.sin(angles)], axis=1, dtype=np.float32
      ) / np.float32(np.sqrt(num_frequencies))

    return embed


EMBEDDINGS: registry.Registry[Embedding] = registry.Registry(
  Embedding,
  {"pixels": Pixels, "random_features": RandomFeatures},
  kind="embedding",
)
