"""Precision of clients on a CPU: 32 bits, or 16 where it is faster.

With `mixed_bfloat16`, TensorFlow rewrites the client's graph so that
convolutions, matrix products and some of what lies between them pass `bfloat16`
tensors, which have the range of `float32` and 8 bits of precision. Weights,
updates, clipping and sums are left in `float32`.
"""

import pathlib
from typing import Any

from tff_fedemb import errors

FLOAT32 = "float32"
MIXED_BFLOAT16 = "mixed_bfloat16"
PRECISIONS = (FLOAT32, MIXED_BFLOAT16)

# Any one of these processor features is enough; the names are Linux's.
_BFLOAT16 = frozenset({"amx_bf16", "avx512_bf16", "bf16"})

# Operations of optimizers. TensorFlow would round the weights themselves after
# every step, and with them the update, which is far smaller than a weight.
_ARITHMETIC = "Add,AddN,AddV2,Mul,Sub"

_CPU_INFO = pathlib.Path("/proc/cpuinfo")


def has_bfloat16() -> bool:
  """Whether this machine's first processor has `bfloat16`.

  Returns:
    False also where there is no `/proc/cpuinfo` to read it from.
  """
  # Only Linux has this file.
  text = _CPU_INFO.read_text() if _CPU_INFO.exists() else ""
  for line in text.splitlines():
    name, _, value = line.partition(":")
    if name.strip() in ("flags", "Features"):
      return not _BFLOAT16.isdisjoint(value.split())
  return False


def check_precision(compute_precision: str) -> None:
  """Checks that this machine's processor has a precision.

  Args:
    compute_precision: One of `PRECISIONS`.

  Raises:
    errors.FieldError: If the processor lacks it.
  """
  if compute_precision != FLOAT32 and not has_bfloat16():
    raise errors.FieldError(
      "compute_precision",
      f"be {FLOAT32} on a processor without {' or '.join(sorted(_BFLOAT16))}",
      compute_precision,
    )


def check_backbone(backbone: Any, compute_precision: str) -> None:
  """Checks that a backbone is not slowed down by a precision.

  TensorFlow has no fast kernels of depthwise convolutions in `bfloat16`: a
  round of MobileNetV2 takes 1.35 times as long as in `float32` on a processor
  with AVX512-BF16, and as long as in `float32` if these layers alone are left
  in it.

  Args:
    backbone: A Keras model.
    compute_precision: One of `PRECISIONS`.

  Raises:
    errors.FieldError: If it has depthwise convolutions and the precision is
      `MIXED_BFLOAT16`.
  """
  if compute_precision != MIXED_BFLOAT16:
    return
  for layer in backbone.layers:
    if type(layer).__name__ == "DepthwiseConv2D":
      raise errors.FieldError(
        "compute_precision",
        f"be {FLOAT32} for a backbone with depthwise convolutions, such as"
        f" {layer.name}, which takes 1.35 times as long in {MIXED_BFLOAT16}",
        compute_precision,
      )


def environment(compute_precision: str) -> dict[str, str]:
  """Returns the environment variables that set a precision in TensorFlow.

  Set them before TensorFlow computes anything. They keep TensorFlow from
  rounding additions, subtractions and multiplications, and with them the
  weights after each step.

  Args:
    compute_precision: One of `PRECISIONS`.

  Returns:
    Values of environment variables by name; empty for `FLOAT32`.
  """
  if compute_precision == FLOAT32:
    return {}
  rewriting = "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE"
  return {
    f"{rewriting}_INFERLIST_REMOVE": _ARITHMETIC,
    f"{rewriting}_DENYLIST_ADD": _ARITHMETIC,
  }
