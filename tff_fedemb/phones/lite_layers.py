"""Layers whose training TensorFlow Lite can do with built-in operations.

TensorFlow Lite has no operation for the gradients of convolution, pooling and
most activations. This module writes them out: a convolution multiplies columns,
the patches of its input side by side, and its gradients are products of columns
as well; pooling slices its input into four. A backbone is read layer by layer
and becomes a function of its weights, which are inputs instead of variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf

from tff_fedemb import errors
from tff_fedemb.models import blocks
from tff_fedemb.models import graph_gradients
from tff_fedemb.models import weight_names

_layers = tf.keras.layers

# Value of padding in a pool, below any activation.
_LOWEST = -1e30
# Side of the squares that are pooled, and the stride.
_POOL = 2


@graph_gradients.custom_gradient
def _relu(x: tf.Tensor):
  """Applies the activation, with a gradient of built-in operations."""
  y = tf.nn.relu(x)
  return y, lambda upstream: upstream * tf.cast(y > 0, tf.float32)


@graph_gradients.custom_gradient
def _tanh(x: tf.Tensor):
  """Applies the activation, with a gradient of built-in operations."""
  y = tf.tanh(x)
  return y, lambda upstream: upstream * (1.0 - y * y)


_ACTIVATIONS = {"linear": tf.identity, "relu": _relu, "tanh": _tanh}


@graph_gradients.custom_gradient
def add_bias(x: tf.Tensor, bias: tf.Tensor):
  """Adds a bias to each channel.

  Args:
    x: `[..., channels]`.
    bias: `[channels]`.

  Returns:
    A tensor of the shape of `x`.
  """
  axes = list(range(x.shape.rank - 1))

  def gradient(upstream: tf.Tensor):
    return upstream, tf.reduce_sum(upstream, axes)

  return x + bias, gradient


@graph_gradients.custom_gradient
def normalize_rows(x: tf.Tensor):
  """Scales each row to norm one, as `tf.math.l2_normalize`.

  Args:
    x: `[rows, dim]`.

  Returns:
    `[rows, dim]`; a row of zeros stays.
  """
  squares = tf.reduce_sum(x * x, axis=1, keepdims=True)
  inverse = tf.math.rsqrt(tf.maximum(squares, 1e-12))
  y = x * inverse

  def gradient(upstream: tf.Tensor):
    along = tf.reduce_sum(upstream * y, axis=1, keepdims=True)
    return inverse * (upstream - y * along)

  return y, gradient


def _columns(x: tf.Tensor, side: int):
  """Returns the patch around every place, `[places, side^2 channels]`.

  Args:
    x: Maps `[batch, height, width, channels]`; only the batch may be unknown.
    side: Odd side of a patch. Places beyond the margin are 0.
  """
  height, width, channels = x.shape[1:]
  margin = [side // 2, side // 2]
  padded = tf.pad(x, [[0, 0], margin, margin, [0, 0]])
  patches = []
  for row in range(side):
    for column in range(side):
      patch = padded[:, row : row + height, column : column + width]
      patches.append(patch)
  return tf.reshape(tf.concat(patches, 3), [-1, side * side * channels])


@graph_gradients.custom_gradient
def convolve(x: tf.Tensor, kernel: tf.Tensor):
  """Convolves maps, with stride 1 and padding to the same size.

  Args:
    x: `[batch, height, width, before]`.
    kernel: `[side, side, before, after]`, of an odd side.

  Returns:
    `[batch, height, width, after]`.
  """
  side, _, before, after = kernel.shape
  height, width = x.shape[1:3]
  columns = _columns(x, side)
  taps = tf.reshape(kernel, [side * side, before, after])

  def gradient(upstream: tf.Tensor):
    by_place = tf.reshape(upstream, [-1, after])
    of_kernel = tf.matmul(columns, by_place, transpose_a=True)
    # Reversing the taps turns the kernel on both axes.
    turned = tf.transpose(tf.reverse(taps, [0]), [0, 2, 1])
    turned = tf.reshape(turned, [-1, before])
    of_x = tf.matmul(_columns(upstream, side), turned)
    return (
      tf.reshape(of_x, [-1, height, width, before]),
      tf.reshape(of_kernel, kernel.shape),
    )

  y = tf.matmul(columns, tf.reshape(taps, [-1, after]))
  return tf.reshape(y, [-1, height, width, after]), gradient


def pool(x: tf.Tensor, *, keeps_last: bool) -> tf.Tensor:
  """Takes the largest of each two by two places.

  Args:
    x: Maps `[batch, height, width, channels]`.
    keeps_last: Whether the last row and column of odd sides are kept.

  Returns:
    Maps of half the height and width; of odd sides the larger half if the last
    are kept, else the smaller.
  """
  rows, columns, channels = x.shape[1:]
  height = (rows + keeps_last) // _POOL
  width = (columns + keeps_last) // _POOL
  even_rows = _POOL * height
  even_columns = _POOL * width
  # Odd sides: either the input is padded, or the pool leaves the last row or
  # column out, and the gradient is padded.
  missing = _margins(even_rows - rows, even_columns - columns)
  spare = _margins(rows - even_rows, columns - even_columns)

  @graph_gradients.custom_gradient
  def take_largest(x: tf.Tensor):
    padded = tf.pad(x, missing, constant_values=_LOWEST)
    padded = padded[:, :even_rows, :even_columns]
    pairs = tf.reshape(padded, [-1, _POOL, width, _POOL * channels])
    parts = []
    for row in range(_POOL):
      for column in range(_POOL):
        some = slice(column * channels, (column + 1) * channels)
        parts.append(pairs[:, row, :, some])
    upper = tf.maximum(parts[0], parts[1])
    lower = tf.maximum(parts[2], parts[3])
    largest = tf.maximum(upper, lower)

    def gradient(upstream: tf.Tensor):
      left = tf.reshape(upstream, [-1, width, channels])
      shares = []
      # The first of equal parts gets all of the gradient, as in TensorFlow.
      for part in parts:
        share = left * tf.cast(tf.equal(part, largest), tf.float32)
        shares.append(share)
        left -= share
      upper = tf.concat(shares[:2], 2)
      lower = tf.concat(shares[2:], 2)
      whole = tf.stack([upper, lower], 1)
      whole = tf.reshape(whole, [-1, even_rows, even_columns, channels])
      return tf.pad(whole[:, :rows, :columns], spare)

    return tf.reshape(largest, [-1, height, width, channels]), gradient

  return take_largest(x)


def _margins(rows: int, columns: int) -> list[list[int]]:
  """Returns the padding of maps by rows below and columns to the right.

  Args:
    rows: Number of rows; none if it is negative.
    columns: Number of columns, likewise.

  Returns:
    Paddings for `tf.pad` of `[batch, height, width, channels]`.
  """
  return [[0, 0], [0, max(rows, 0)], [0, max(columns, 0)], [0, 0]]


def _refuse(layer: tf.keras.layers.Layer, why: str) -> errors.FieldError:
  """Returns the error of a layer that a file cannot train."""
  return errors.FieldError(
    "backbone",
    "have layers that a client's file can train, a chain of Conv2D of stride 1,"
    " MaxPool2D of 2, Dense, GroupNormalization and relu or tanh",
    f"layer {layer.name!r} ({type(layer).__name__}{why})",
  )


def _activate(layer: tf.keras.layers.Layer, x: tf.Tensor) -> tf.Tensor:
  """Applies a layer's activation.

  Raises:
    errors.FieldError: If it is none of linear, relu and tanh.
  """
  name = getattr(layer.activation, "__name__", "?")
  if name not in _ACTIVATIONS:
    raise _refuse(layer, f", activation {name}")
  return _ACTIVATIONS[name](x)


def _apply(
  layer: tf.keras.layers.Layer,
  weights: Sequence[tf.Tensor],
  x: tf.Tensor,
  *,
  is_trained: bool,
) -> tf.Tensor:
  """Applies a layer by the rule for its class; a derived class has none.

  Args:
    layer: A layer of Keras.
    weights: Values for its weights, in their order.
    x: Input, `[batch, ...]`.
    is_trained: See `run`.

  Returns:
    The layer's output.

  Raises:
    errors.FieldError: If there is no rule for the layer or its options.
  """
  kind = type(layer)
  if kind in (_layers.Conv2D, _layers.Dense):
    kernel = weights[0]
    if kind is _layers.Dense:
      x = tf.matmul(x, kernel)
    else:
      x = _apply_convolution(layer, kernel, x, is_trained=is_trained)
    if len(weights) > 1:
      x = add_bias(x, weights[1])
    return _activate(layer, x)
  if kind is _layers.MaxPooling2D:
    if {layer.pool_size, layer.strides} != {(_POOL, _POOL)}:
      raise _refuse(layer, f" of {layer.pool_size}")
    if is_trained:
      return pool(x, keeps_last=layer.padding == "same")
    return tf.nn.max_pool2d(x, _POOL, _POOL, layer.padding.upper())
  if kind is blocks.GroupNormalization:
    scale, offset = weights
    return blocks.normalize_groups(
      x, scale, offset, groups=layer.groups, epsilon=layer.epsilon
    )
  if kind is _layers.Activation:
    return _activate(layer, x)
  if kind is _layers.Flatten:
    return tf.reshape(x, [-1, x.shape[1:].num_elements()])
  raise _refuse(layer, "")


def _apply_convolution(
  layer: tf.keras.layers.Layer,
  kernel: tf.Tensor,
  x: tf.Tensor,
  *,
  is_trained: bool,
) -> tf.Tensor:
  """Applies the kernel of a convolution, if it is one that can be trained.

  Raises:
    errors.FieldError: If the kernel is no odd square, or stride, dilation,
      groups or padding are others than 1, 1, 1 and "same".
  """
  side = layer.kernel_size[0]
  is_odd_square = layer.kernel_size == (side, side) and side % 2
  options = (layer.strides, layer.dilation_rate, layer.groups, layer.padding)
  if not is_odd_square or options != ((1, 1), (1, 1), 1, "same"):
    raise _refuse(layer, " with other strides, padding or kernel")
  if is_trained:
    return convolve(x, kernel)
  return tf.nn.conv2d(x, kernel, 1, "SAME")


# Allowed before the first layer with weights, where no gradient passes.
_OF_INPUT = (
  _layers.InputLayer,
  _layers.LayerNormalization,
  _layers.Rescaling,
  _layers.Resizing,
  blocks.AreaResizing,
)


def names_of(
  backbone: tf.keras.Model, weights: Iterable[tf.Variable]
) -> list[str]:
  """Returns the names of weights in the file, such as `conv1_kernel`.

  Args:
    backbone: A Keras model.
    weights: Some of its weights.

  Returns:
    Their names in SavedModels, with underscores for slashes: the same ones in
    every process.
  """
  names = {}
  for name, weight in weight_names.portable_weights(backbone):
    names[id(weight)] = name.replace("/", "_")
  return [names[id(weight)] for weight in weights]


def run(
  backbone: tf.keras.Model,
  weights: Mapping[str, tf.Tensor],
  images: tf.Tensor,
  *,
  is_trained: bool,
) -> tf.Tensor:
  """Applies a backbone with other weights than its own.

  Args:
    backbone: A chain of layers; its own weights are not used.
    weights: Values of all its weights, by `names_of`.
    images: float32 `[batch, height, width, channels]` in [0, 255].
    is_trained: Whether gradients of the weights will be asked for. Without
      them, faster operations do.

  Returns:
    Embeddings `[batch, dim]`, not normalised.

  Raises:
    errors.FieldError: If the backbone is no chain, or has a layer without a
      rule here.
  """
  x = images
  of_input = True
  for layer in backbone.layers:
    of_input = of_input and not layer.weights
    if of_input and isinstance(layer, _OF_INPUT):
      x = layer(x)
      continue
    own = [weights[name] for name in names_of(backbone, layer.weights)]
    x = _apply(layer, own, x, is_trained=is_trained)
  if not isinstance(backbone, tf.keras.Sequential):
    raise _refuse(backbone, ", no chain of layers")
  return x
