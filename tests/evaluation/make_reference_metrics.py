"""Makes reference_metrics.json, by pytorch-metric-learning and scikit-learn.

In an environment of their own, from the top of the repository:

  pip install torch pytorch-metric-learning scikit-learn "numpy<2"
  python tests/evaluation/make_reference_metrics.py

The tests compare with these values, and need no torch.
"""

import json
import pathlib

import numpy as np

_HERE = pathlib.Path(__file__).parent
VALUES = _HERE / "reference_metrics.json"
_NUM_IMAGES, _NUM_CLASSES = 2000, 100


def load():
  """Embeddings float64 `[2000, dim]` and labels by name.

  "random" has no classes to find. "trained" are 20 drawings of each of 100
  characters of Omniglot's held-out alphabets (MIT licence), embedded by FedEmb
  after training on the others: the first 64 of 128 numbers, as float16.
  """
  generator = np.random.default_rng(7)
  trained = np.load(_HERE / "trained_embeddings.npz")["embeddings"]
  labels = np.repeat(np.arange(_NUM_CLASSES), _NUM_IMAGES // _NUM_CLASSES)
  return {
    "random": (
      generator.normal(size=(_NUM_IMAGES, 32)),
      # Classes of all sizes, some of one image.
      generator.integers(0, generator.integers(1, 600, _NUM_IMAGES)),
    ),
    "trained": (trained.astype(np.float64), labels),
  }


def assign(embeddings):
  """A clustering to compare on: the nearest of the first of each 20 images."""
  unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
  return np.argmax(unit @ unit[::20].T, axis=1)


def _compute(embeddings, labels):
  # Only this script needs them.
  from pytorch_metric_learning import distances
  from pytorch_metric_learning.utils import accuracy_calculator
  from pytorch_metric_learning.utils import inference
  from scipy import optimize
  from sklearn import metrics
  import torch

  clusters = torch.from_numpy(assign(embeddings))
  calculator = accuracy_calculator.AccuracyCalculator(
    include=(
      *("precision_at_1", "r_precision", "mean_average_precision_at_r"),
      *("mean_reciprocal_rank", "NMI"),
    ),
    k=len(labels) - 1,
    device=torch.device("cpu"),
    # In double precision, where that of FAISS is single.
    knn_func=inference.CustomKNN(distances.CosineSimilarity(), batch_size=500),
    kmeans_func=lambda query, num_clusters: clusters,
  )
  found = calculator.get_accuracy(
    torch.from_numpy(embeddings), torch.from_numpy(labels)
  )
  unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
  rows, columns = np.triu_indices(len(labels), k=1)
  same = labels[rows] == labels[columns]
  cosines = (unit @ unit.T)[rows, columns]
  accepted, recall, _ = metrics.roc_curve(
    same, cosines, drop_intermediate=False
  )
  equal = optimize.brentq(
    lambda rate: 1 - rate - np.interp(rate, accepted, recall), 0, 1, xtol=1e-12
  )
  return {
    "precision_at_1": found["precision_at_1"],
    "r_precision": found["r_precision"],
    "map_at_r": found["mean_average_precision_at_r"],
    "mean_reciprocal_rank": found["mean_reciprocal_rank"],
    "nmi": found["NMI"],
    "auc": metrics.roc_auc_score(same, cosines),
    "equal_error_rate": equal,
    "d_prime": (cosines[same].mean() - cosines[~same].mean())
    / np.sqrt((cosines[same].var() + cosines[~same].var()) / 2),
  }


def main():
  values = {name: _compute(*data) for name, data in load().items()}
  text = json.dumps(values, indent=2, default=float)
  VALUES.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
  main()
