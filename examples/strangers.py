"""Does a threshold for a gallery keep its promise to other people?

One half of a run's held-out classes sets thresholds. Of the other half some are
enrolled with five images, and the rest are strangers. docs/export.md has the
table that this prints for Omniglot. In hindsight is what the threshold finds
that accepts the promised share of these very strangers.
  python -m examples.strangers RUN_DIR 0.1,0.01 20,100
"""

from collections.abc import Sequence
import json
import pathlib
import sys

import numpy as np
import pandas as pd

import tff_fedemb as fe
from tff_fedemb import errors
from tff_fedemb.evaluation import gallery_thresholds
from tff_fedemb.evaluation import pairs

_NUM_SPLITS, _ENROLLED = 20, 5


def _embed(run_dir: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
  """Embeds all held-out images; returns unit vectors, and classes by number."""
  spec = fe.RunSpec.from_json(json.loads((run_dir / "run.json").read_text()))
  task, backbone = spec.task.create(), fe.Result(spec, str(run_dir)).backbone
  splits = [task.load_images(split) for split in ("validation", "test")]
  names = [f"{i} {x}" for i, part in enumerate(splits) for x in part.labels]
  embeddings = [backbone.predict(part.images, verbose=0) for part in splits]
  labels = np.unique(names, return_inverse=True)[1]
  return pairs.normalize(np.concatenate(embeddings)), labels


def main(argv: Sequence[str]) -> None:
  """Prints a row for each size of gallery and each promised rate."""
  _, run_dir, rates, sizes = argv
  embeddings, labels = _embed(pathlib.Path(run_dir))
  random, rows = np.random.default_rng(0), []
  for _ in range(_NUM_SPLITS):
    first, second = np.array_split(random.permutation(labels.max() + 1), 2)
    of_first = np.isin(labels, first)
    curve = gallery_thresholds.measure(embeddings[of_first], labels[of_first])
    for size in map(int, sizes.split(",")):
      members, strangers = np.split(random.permutation(second), [size])
      images = [
        random.permutation(np.flatnonzero(labels == x)) for x in members
      ]
      gallery = embeddings[[x[:_ENROLLED] for x in images]].mean(axis=1)
      gallery = pairs.normalize(gallery)
      probes = np.concatenate([x[_ENROLLED:] for x in images])
      own = np.repeat(np.arange(size), [len(x) - _ENROLLED for x in images])
      alike = embeddings[probes] @ gallery.T
      # Those that are taken for somebody else are never found.
      right = np.where(alike.argmax(1) == own, alike.max(1), -np.inf)
      nearest = (embeddings[np.isin(labels, strangers)] @ gallery.T).max(1)
      for rate in map(float, rates.split(",")):
        in_hindsight = np.mean(right > np.quantile(nearest, 1 - rate))
        for certainty in (None, 0.95):
          try:
            found = gallery_thresholds.find(
              curve, rate, size, _ENROLLED, certainty=certainty
            )
          except errors.FieldError:
            continue
          accepted = np.mean(nearest >= found.threshold)
          is_found = np.mean(right >= found.threshold)
          rows.append(
            (size, rate, certainty or 0, accepted, found.low, found.high)
            + (is_found, in_hindsight, not found.is_supported)
          )
  columns = ["N", "promised", "certainty", "accepted", "low", "high", "found"]
  table = pd.DataFrame(rows, columns=[*columns, "in hindsight", "warns"])
  by_row = table.groupby(["N", "promised", "certainty"])
  print(by_row.mean().assign(draws=by_row.size()).round(4).to_string())


if __name__ == "__main__":
  main(sys.argv)
