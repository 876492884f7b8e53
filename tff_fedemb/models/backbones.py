"""The registry of backbones: Keras models from images to embeddings.

A part of a backbone may be trained and the rest frozen: Sidahmed et al. 2021
("Efficient and Private Federated Learning with Partially Trainable Networks").
A frozen weight is not part of a client's update: it is neither clipped nor
noised and costs no privacy. Freezing also reduces the noise: its norm grows
with the square root of the number of noised weights, while the norm of the
clipped update does not. A frozen weight costs nothing because no user's data
change it: it must be random or from public data, never from the users' own.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import functools
import inspect
import re
from typing import Any

from etils import epy

from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb import registry
from tff_fedemb.models import mobilenet_v2
from tff_fedemb.models import pooled
from tff_fedemb.models import resnet
from tff_fedemb.models import sequences

with epy.lazy_imports():
  import tensorflow as tf

  from tff_fedemb.models import blocks

TRAINABLE = ("all", "outer", "norm", "embedding")
EMBEDDING = "embedding"
_PUBLISHED = "published"
GROUP, FROZEN = "group", "frozen"


@dataclasses.dataclass(frozen=True)
class Backbone:
  """A backbone before it is created.

  Attributes:
    create: Makes the fully trainable Keras model from the shape of an image
      and the keyword argument `embedding_dim`.
    middle: Regular expression that the names of the layers in the middle
      stages begin with: those whose maps have an eighth or a sixteenth of the
      image's side. `None` for a backbone that has no such stages.
    published: The part that Xu et al. 2023 train with `trainable_conv=False`
      in `dp_visual_embeddings`, one of `TRAINABLE`; `None` for none.
    has_norm_choice: Whether `create` takes `norm`, as in `BackboneConfig`.
  """

  create: Callable[..., tf.keras.Model]
  middle: str | None = None
  published: str | None = None
  has_norm_choice: bool = False


class _Backbones(dict[str, Backbone]):
  """Backbones by name; a name `module:function` is imported on demand."""

  def __contains__(self, name: object) -> bool:
    """Whether a name is registered, or can be imported.

    Raises:
      errors.DataError: If `module:function` cannot be imported.
    """
    is_own = isinstance(name, str) and ":" in name
    return super().__contains__(name) or (is_own and bool(self[str(name)]))

  def __missing__(self, name: str) -> Backbone:
    """Imports your own `create` function; it has no middle stages.

    Raises:
      KeyError: If the name is neither registered nor `module:function`.
      errors.DataError: If it cannot be imported, or takes other arguments.
    """
    create = registry.import_name(name)
    try:
      inspect.signature(create).bind((), embedding_dim=1)
    except (TypeError, ValueError) as error:
      raise errors.DataError(
        f"{name} must be a function of an image's shape and embedding_dim:"
        f" {error}."
      ) from error
    return Backbone(create)


_mobilenet_v2 = functools.partial(
  Backbone, published="norm", has_norm_choice=True
)
_resnet = functools.partial(
  Backbone, middle=r"conv[34]_", published="outer", has_norm_choice=True
)
# To add a backbone, write one function and add one entry here.
BACKBONES = _Backbones(
  {
    "conv1d": Backbone(sequences.create_conv1d),
    "conv4": Backbone(pooled.create_conv4, middle="conv[23]"),
    "conv4_48": Backbone(pooled.create_conv4_48, middle="conv[23]"),
    "conv4_wide": Backbone(pooled.create_conv4_wide, middle="conv[23]"),
    "convnet": Backbone(pooled.create_convnet),
    "convnet_tanh": Backbone(pooled.create_convnet_tanh),
    "dense": Backbone(sequences.create_dense),
    "lenet": Backbone(pooled.create_lenet),
    "mobilenet_v2": _mobilenet_v2(
      mobilenet_v2.create_mobilenet_v2, middle=r"block_([3-9]|1[0-2])_"
    ),
    "mobilenet_v2_small": _mobilenet_v2(
      mobilenet_v2.create_mobilenet_v2_small, middle=r"block_[2-4]_"
    ),
    "resnet50": _resnet(resnet.create_resnet50),
    "resnet_small": _resnet(resnet.create_resnet_small),
    "strided": Backbone(pooled.create_strided),
  }
)


def freeze(
  backbone: tf.keras.Model, trainable: str, *, middle: str | None = None
) -> None:
  """Freezes all of a backbone but what is to be trained.

  The embedding layer is always trained. Frozen weights move to
  `backbone.non_trainable_variables`; the order of `backbone.get_weights()`
  stays the same.

  Args:
    backbone: A flat model (its layers hold no models) whose last layer is named
      "embedding"; its layers' `trainable` is changed.
    trainable: One of `TRAINABLE`: "all"; "outer", all but the middle stages'
      convolutions; "norm", normalisation and embedding; "embedding".
    middle: See `Backbone`; `None` rules out "outer".

  Raises:
    errors.FieldError: If the last layer has another name; if `trainable` is
      unknown, is "outer" without a middle, or "norm" although no normalisation
      layer has weights.
  """
  if backbone.layers[-1].name != EMBEDDING:
    raise errors.FieldError(
      "backbone",
      f"have a last layer named {EMBEDDING!r}",
      repr(backbone.layers[-1].name),
    )
  layers = tf.keras.layers
  normalizations = (
    layers.BatchNormalization,
    layers.GroupNormalization,
    layers.LayerNormalization,
  )
  has_norm = False
  for layer in backbone.layers:
    if isinstance(layer, normalizations) and layer.weights:
      has_norm = True
  choices = list(TRAINABLE)
  if middle is None:
    choices.remove("outer")
  if not has_norm:
    choices.remove("norm")
  if trainable not in choices:
    raise errors.FieldError(
      "trainable",
      f"be one of {', '.join(choices)} for backbone {backbone.name}",
      repr(trainable),
    )
  for layer in backbone.layers:
    layer.trainable = (
      trainable == "all"
      or layer.name == EMBEDDING
      or (trainable != "embedding" and isinstance(layer, normalizations))
      or (trainable == "outer" and not re.match(middle or "", layer.name))
    )


def create_backbone(
  name: str, image_shape: tuple[int, ...], **options: Any
) -> tf.keras.Model:
  """Creates a backbone by name.

  Number of trainable parameters with 3 channels and 128 dimensions:

  | backbone           |        all |      outer |    norm | embedding |
  |--------------------|------------|------------|---------|-----------|
  | conv1d at 128x1    |     31,168 |          - |       - |     8,320 |
  | conv4 at 28x28x1   |    250,912 |    177,184 |  66,304 |    65,664 |
  | conv4_48, any size |    332,832 |    259,104 | 148,224 |   147,584 |
  | conv4_wide         |    487,040 |    321,152 |  99,392 |    98,432 |
  | convnet at 28x28x1 |     97,408 |          - |       - |    73,856 |
  | convnet_tanh       | as convnet |            |         |           |
  | dense at 64        |     41,344 |          - |       - |    16,512 |
  | lenet at 28x28x1   |    453,632 |          - |       - |   401,536 |
  | mobilenet_v2       |  2,387,840 |  1,876,016 | 198,080 |   163,968 |
  | mobilenet_v2_small |    161,760 |    146,112 |  37,440 |    32,896 |
  | resnet50           | 23,796,864 | 15,492,736 | 315,392 |   262,272 |
  | resnet_small       |    574,464 |    455,744 |  70,496 |    65,664 |
  | strided at 28x28x1 |    111,776 |          - |       - |    98,432 |

  Args:
    name: A key of `BACKBONES`, or `module:function` of your own.
    image_shape: `(height, width, channels)` of an image; for `conv1d`
      `(time, channels)` of a sequence, for `dense` `(size,)` of a vector.
    **options: Fields of a `BackboneConfig`: `embedding_dim`, `norm`, and
      `trainable`, the part that is trained and so private, one of `TRAINABLE`:
      "all"; "outer", all but the middle stages' convolutions; "norm",
      normalisation and embedding; "embedding", the embedding layer; or
      "published", as `Backbone` has it.

  Returns:
    A Keras model from images `[batch, height, width, channels]` in [0, 255], or
    other examples, to embeddings `[batch, embedding_dim]`, not normalised. Its
    last layer is named "embedding".

  Raises:
    errors.FieldError: If the name is unknown or the backbone rejects its
      arguments.
    errors.DataError: If `module:function` cannot be imported.
  """
  return BackboneConfig(backbone=name, **options).create(
    image_shape, default=name
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class BackboneConfig(config.Config):
  """The backbone of a run.

  Attributes:
    backbone: Backbone, or `module:function` of one's own [the task's].
    embedding_dim: Size of the embedding.
    trainable: Part of the backbone that is trained, clipped and noised [all]
      (outer: all but the convolutions of the middle stages; norm: normalisation
      layers and embedding; published: what the method's authors train in a
      frozen MobileNetV2, norm, or ResNet, outer).
    norm: Normalisation between the convolutions of mobilenet_v2 and resnet50:
      group, by the statistics of each image, or frozen, by the statistics of
      batches that a pretrained_backbone came with, which stay as they are.

  Examples:
    >>> backbone = fe.Backbone(backbone="lenet", embedding_dim=64)
    >>> fe.FedEmb(backbone=backbone).backbone.embedding_dim
    64
  """

  backbone: str | None = config.field(None, choices=BACKBONES, searchable=True)
  embedding_dim: int = config.field(128, minimum=1, searchable=True)
  trainable: str | None = config.field(
    None, choices=(*TRAINABLE, _PUBLISHED), searchable=True
  )
  norm: str = config.field(GROUP, choices=(GROUP, FROZEN))

  def create(
    self, image_shape: tuple[int, ...], *, default: str
  ) -> tf.keras.Model:
    """Creates the backbone, see `create_backbone`.

    Args:
      image_shape: Shape of an example, without the batch.
      default: Name of the task's backbone, used if `backbone` is `None`.

    Returns:
      A Keras model with freshly drawn weights from examples to embeddings
      `[batch, embedding_dim]`, not normalised. The layers that `trainable`
      leaves out are frozen.

    Raises:
      errors.FieldError: If the backbone rejects the shape, has no such part as
        `trainable`, or has no choice of `norm` and `norm` is not "group".
    """
    name = self.backbone or default
    descriptor = BACKBONES[name]
    options: dict[str, Any] = {"embedding_dim": self.embedding_dim}
    if descriptor.has_norm_choice:
      options["norm"] = self.norm
    elif self.norm != GROUP:
      raise errors.FieldError(
        "norm", f"be {GROUP} for backbone {name}", self.norm
      )
    backbone = descriptor.create(image_shape, **options)
    _check_backbone(name, backbone, self.embedding_dim)
    trainable = self.trainable or "all"
    if trainable == _PUBLISHED and descriptor.published:
      trainable = descriptor.published
    freeze(backbone, trainable, middle=descriptor.middle)
    _check_statistics(name, backbone)
    return backbone


def _check_statistics(name: str, backbone: tf.keras.Model) -> None:
  """Refuses layers that train with the statistics of a batch.

  Clients do not send these statistics, so a released model would go on with
  those that the layers start with.

  Args:
    name: Name of the backbone.
    backbone: The backbone, frozen in part.

  Raises:
    errors.FieldError: If there is such a layer.
  """
  for layer in backbone.submodules:
    is_batch = isinstance(layer, tf.keras.layers.BatchNormalization)
    is_constant = isinstance(layer, blocks.FrozenNormalization)
    if is_batch and layer.trainable and not is_constant:
      raise errors.FieldError(
        "backbone",
        "have group normalisation in place of batch normalisation, whose"
        " statistics clients do not send",
        f"layer {layer.name} of {name}",
      )


def _check_backbone(name: str, backbone: Any, embedding_dim: int) -> None:
  """Checks what a function of yours has returned.

  Args:
    name: Name of the backbone.
    backbone: What its function returned.
    embedding_dim: Size of the embedding that was asked for.

  Raises:
    errors.FieldError: If it is no Keras model of one such embedding an example.
  """
  found = type(backbone).__name__
  if isinstance(backbone, tf.keras.Model):
    found = f"output {backbone.output_shape}"
    if backbone.output_shape == (None, embedding_dim):
      return
  raise errors.FieldError(
    "backbone",
    f"return a Keras model of embeddings (None, {embedding_dim})",
    f"{found} from {name}",
  )
