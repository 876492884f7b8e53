"""Does a threshold for a gallery keep its promise to other people?

One half of a run's held-out classes sets thresholds. Of the other half some are
enrolled with five images, and the rest are strangers. docs/export.md has the
table that this prints for Omniglot. In hindsight is what the threshold finds
that accepts the promised share of these very strangers.
  python -m examples.strangers RUN_DIR 0.1,0.01 20,100
"""

from collections.abc import Iterator, Sequence
import contextlib
import itertools
import json
import pathlib
import sys
from typing import Any

import numpy as np
import pandas as pd

import tff_fedemb as fe
from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.evaluation import cohorts
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


def _measure(
  embeddings: np.ndarray, labels: np.ndarray, rates: str, sizes: str
) -> Iterator[dict[str, Any]]:
  """Yields a row for each split, size, rate, way of scoring and certainty."""
  random = np.random.default_rng(0)
  for _ in range(_NUM_SPLITS):
    first, second = np.array_split(random.permutation(labels.max() + 1), 2)
    held_out = embeddings[np.isin(labels, first)]
    of_held_out = labels[np.isin(labels, first)]
    cohort = cohorts.Cohort(held_out, of_held_out)
    curves = [
      checks.check_given(
        "curve",
        gallery_thresholds.measure(held_out, of_held_out, normalized=x),
      )
      for x in (False, True)
    ]
    for size in map(int, sizes.split(",")):
      members, strangers = np.split(random.permutation(second), [size])
      images = [
        random.permutation(np.flatnonzero(labels == x)) for x in members
      ]
      means = embeddings[[x[:_ENROLLED] for x in images]].mean(axis=1)
      probes = embeddings[np.concatenate([x[_ENROLLED:] for x in images])]
      own = np.repeat(np.arange(size), [len(x) - _ENROLLED for x in images])
      others = embeddings[np.isin(labels, strangers)]
      alike, of_strangers = (
        x @ pairs.normalize(means).T for x in (probes, others)
      )
      # A person who is taken for somebody else counts as not found.
      right = np.where(alike.argmax(1) == own, alike.max(1), -np.inf)
      next_of_probes, next_of_others = (
        np.partition(x, -2, axis=1)[:, -2] for x in (alike, of_strangers)
      )
      for curve, is_normalized in zip(curves, (False, True), strict=True):
        right = right - is_normalized * cohort.offsets(probes)
        nearest = of_strangers.max(1) - is_normalized * cohort.offsets(others)
        for rate, certainty in itertools.product(
          map(float, rates.split(",")), (None, 0.95)
        ):
          with contextlib.suppress(errors.FieldError):
            found = gallery_thresholds.find(
              curve, rate, size, _ENROLLED, certainty=certainty
            )
            weight = found.runner_up_weight
            found_at = right - weight * next_of_probes
            accepted_at = nearest - weight * next_of_others
            yield {
              "N": size,
              "promised": rate,
              "cohort": is_normalized,
              "certainty": certainty or 0.0,
              "accepted": np.mean(accepted_at >= found.threshold),
              "low": found.low,
              "high": found.high,
              "found": np.mean(found_at >= found.threshold),
              "in hindsight": np.mean(
                found_at > np.quantile(accepted_at, 1 - rate)
              ),
              "best alone": np.mean(right > np.quantile(nearest, 1 - rate)),
              "warns": not found.is_supported,
            }


def main(argv: Sequence[str]) -> None:
  """Prints the means over splits."""
  _, run_dir, rates, sizes = argv
  data = _embed(pathlib.Path(run_dir))
  table = pd.DataFrame(_measure(*data, rates, sizes))
  by_use = table.groupby(["N", "promised", "cohort", "certainty"])
  print(by_use.mean().assign(draws=by_use.size()).round(4).to_string())


if __name__ == "__main__":
  main(sys.argv)
