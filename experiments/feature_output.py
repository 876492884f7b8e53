"""The files that fits on features write."""

from collections.abc import Mapping
import json
import pathlib
from typing import Any

import numpy as np


def write_json(path: pathlib.Path, *, values: Mapping[str, Any]) -> None:
  """Writes JSON values, none of them infinite."""
  path.write_text(
    json.dumps(values, indent=2, allow_nan=False) + "\n", encoding="utf-8"
  )


def write_arrays(path: pathlib.Path, **arrays: np.ndarray) -> None:
  """Writes arrays by name as .npz, whatever the path's suffix is."""
  with path.open("wb") as file:
    np.savez(file, **arrays)
