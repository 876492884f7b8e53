"""Precision of clients on a CPU: 32 bits, or 16 where it is faster.

`bfloat16` has the range of `float32` and 8 bits of precision. Two ways lead to
it. Both round what is multiplied, and leave weights, updates, clipping and sums
in `float32`:

* `bfloat16_math`: oneDNN rounds the factors of `float32` convolutions and
  matrix products to `bfloat16` inside of the product and adds up in `float32`.
  It has such products for AMX and for Arm's BF16, and ignores the mode on other
  processors, which is why it is refused there. The mode is that of the whole
  process from then on, evaluation included, and of matrix products on the
  server if an aggregator has any.
* `mixed_bfloat16`: TensorFlow rewrites the client's graph so that convolutions,
  matrix products and some of what lies between them pass `bfloat16` tensors,
  which AVX512-BF16 suffices for.
"""

import pathlib
from typing import Any

from tff_fedemb import errors

FLOAT32 = "float32"
BFLOAT16_MATH = "bfloat16_math"
MIXED_BFLOAT16 = "mixed_bfloat16"

# Any one of these features of a processor, as Linux calls them, is enough.
_NEEDS: dict[str, frozenset[str]] = {
  FLOAT32: frozenset(),
  BFLOAT16_MATH: frozenset({"amx_bf16", "bf16"}),
  MIXED_BFLOAT16: frozenset({"amx_bf16", "avx512_bf16", "bf16"}),
}
PRECISIONS = tuple(_NEEDS)

# Operations of optimizers. TensorFlow would round the weights themselves after
# every step, and with them the update, which is far smaller than a weight.
_ARITHMETIC = "Add,AddN,AddV2,Mul,Sub"

_CPU_INFO = pathlib.Path("/proc/cpuinfo")


def _processor_features() -> frozenset[str]:
  """Features of the first processor; none where Linux does not tell."""
  if not _CPU_INFO.exists():
    return frozenset()
  for line in _CPU_INFO.read_text().splitlines():
    name, _, value = line.partition(":")
    if name.strip() in ("flags", "Features"):
      return frozenset(value.split())
  return frozenset()


def supported_precisions() -> tuple[str, ...]:
  """Returns the precisions that this machine's processor has."""
  features = _processor_features()
  return tuple(
    name for name, needs in _NEEDS.items() if not needs or needs & features
  )


def check_precision(compute_precision: str) -> None:
  """Checks that this machine's processor has a precision.

  Args:
    compute_precision: One of `PRECISIONS`.

  Raises:
    errors.FieldError: If it has not.
  """
  if compute_precision not in supported_precisions():
    needs = " or ".join(sorted(_NEEDS[compute_precision]))
    raise errors.FieldError(
      "compute_precision",
      f"be one of {', '.join(supported_precisions())} on this processor",
      f"{compute_precision}, which needs {needs}",
    )


def check_backbone(backbone: Any, compute_precision: str) -> None:
  """Checks that a backbone gains by a precision.

  TensorFlow has no fast kernels of depthwise convolutions in `bfloat16`: a
  round of MobileNetV2 takes 1.35 times as long as in `float32` on a processor
  with AVX512-BF16, and as long if they alone are left in `float32`.

  Args:
    backbone: A Keras model.
    compute_precision: One of `PRECISIONS`.

  Raises:
    errors.FieldError: If it does not.
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
  """Returns the variables by which oneDNN and TensorFlow know a precision.

  To be set before TensorFlow computes anything: oneDNN reads its mode once.

  Args:
    compute_precision: One of `PRECISIONS`.
  """
  if compute_precision == BFLOAT16_MATH:
    return {"ONEDNN_DEFAULT_FPMATH_MODE": "BF16"}
  if compute_precision == MIXED_BFLOAT16:
    rewriting = "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE"
    return {
      f"{rewriting}_INFERLIST_REMOVE": _ARITHMETIC,
      f"{rewriting}_DENYLIST_ADD": _ARITHMETIC,
    }
  return {}
