"""Fits on features that the benchmark measures, and the files they read.

A case is named METHOD_NxDxK, for n examples of d numbers in K classes.
"""

import dataclasses
import os
import pathlib
import re
import sys
from typing import Any
import zipfile

import numpy as np

from tff_fedemb import errors
from tff_fedemb.features import method as method_lib
from tff_fedemb.features import registry

# Steps of the iterative methods.
STEPS = 30
METHODS: dict[str, dict[str, Any]] = {
  "least_squares": {"covariance": "shared"},
  "sgd": {"steps": STEPS},
  "feature_covariance": {"steps": STEPS},
}
# About half of the vectors are longer than a bound of one.
_MEAN_NORM, _SPREAD_NORM = 0.6, 0.8
_NUMBERS_OF_CHUNK = 2**22
# Of labels, and of the headers of a zip and of the arrays in it.
_LABEL_BYTES, _HEADER_BYTES = 8, 4096


@dataclasses.dataclass(frozen=True)
class Examples:
  """The size of a file of features.

  Attributes:
    num_examples: n, at least 1.
    dim: d, at least 1.
    num_classes: K, at least 2.
  """

  num_examples: int
  dim: int
  num_classes: int

  def __post_init__(self):
    if self.num_examples < 1 or self.dim < 1 or self.num_classes < 2:
      raise errors.FieldError(
        "cases", "have at least 1 example of 1 number in 2 classes", self
      )

  def __str__(self) -> str:
    return f"{self.num_examples}x{self.dim}x{self.num_classes}"

  @property
  def file_bytes(self) -> int:
    """What a file takes."""
    numbers = np.dtype(np.float32).itemsize * self.dim
    return self.num_examples * (numbers + _LABEL_BYTES) + _HEADER_BYTES


@dataclasses.dataclass(frozen=True)
class Case:
  """A method and what it is fitted on.

  Attributes:
    method_name: One of `METHODS`.
    examples: What on.
  """

  method_name: str
  examples: Examples

  def __str__(self) -> str:
    return f"{self.method_name}_{self.examples}"

  def create_method(self) -> method_lib.Method:
    """Returns the method with the benchmark's hyperparameters."""
    return registry.create_method(self.method_name, **METHODS[self.method_name])


def parse(name: str) -> Case:
  """Returns the case of a name.

  Raises:
    errors.FieldError: If it is no name of a case.
  """
  found = re.fullmatch(rf"({'|'.join(METHODS)})_(\d+)x(\d+)x(\d+)", name)
  if found is None:
    raise errors.FieldError(
      "cases",
      "be METHOD_NxDxK (examples, numbers, classes) with METHOD one of"
      f" {', '.join(METHODS)}",
      repr(name),
    )
  return Case(found[1], Examples(*map(int, found.groups()[1:])))


def write(path: str | os.PathLike[str], examples: Examples) -> None:
  """Writes an .npz that can be mapped into memory, a chunk at a time.

  Args:
    path: The file.
    examples: Their number and size; features are float32, a mean for each
      class and normal noise.
  """
  generator = np.random.default_rng(0)
  dim = examples.dim
  means = generator.standard_normal(
    [examples.num_classes, dim], np.float32
  ) * np.float32(_MEAN_NORM / dim**0.5)
  labels = generator.integers(examples.num_classes, size=examples.num_examples)
  size = max(1, _NUMBERS_OF_CHUNK // dim)
  with pathlib.Path(path).open("wb") as file:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
      with archive.open("label.npy", "w") as member:
        np.lib.format.write_array(member, labels)
      with archive.open("repr.npy", "w", force_zip64=True) as member:
        header = np.lib.format.header_data_from_array_1_0(means)
        header["shape"] = (examples.num_examples, dim)
        np.lib.format.write_array_header_1_0(member, header)
        for start in range(0, examples.num_examples, size):
          of_chunk = labels[start : start + size]
          chunk = generator.standard_normal([len(of_chunk), dim], np.float32)
          chunk *= _SPREAD_NORM / dim**0.5
          chunk += means[of_chunk]
          member.write(chunk.tobytes())
    file.flush()
    # Not while something is measured.
    os.fsync(file.fileno())


if __name__ == "__main__":
  write(sys.argv[1], parse(sys.argv[2]).examples)
