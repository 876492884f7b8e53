r"""Does a larger network, or more pretraining, make privacy cheaper?

Mehta et al. 2022 (arXiv 2205.02973) find that private classifiers come closer
to those without noise where features come from more pretraining. This draws how
much noise takes, over the classes of pretraining, for networks of three widths.
WIDE and 500 stand for each width and number:

  python -m binaries.run_centralized --task=symbols --num_users=500 \
    --backbone=examples.scaling:WIDE --embedding_dim=128 --head=cosine \
    --head_lr_scale=1 --client_optimizer=adam --client_learning_rate=0.002 \
    --client_lr_schedule=cosine --batch_size=128 --users_per_round=500 \
    --rounds=125 --evaluate_every=0 --seed=1 --run_dir=runs/WIDE_500
  python -m binaries.extract_features --task=omniglot --data_dir=DIR \
    --saved_model=runs/WIDE_500/release/saved_model --num_classes=200 \
    --test_share=0.25 --output=train.npz --test_output=test.npz
  python -m binaries.sweep_features --train=train.npz --test=test.npz \
    --methods=sgd,least_squares,feature_covariance --num_fits=2 --delta=1e-4 \
    --epsilons=0.1,0.3,1,3,10,inf --output_json=runs/WIDE_500.json
  python -m examples.scaling scaling.png runs/*_*.json
"""

from collections.abc import Sequence
import functools
import json
import math
import pathlib
import sys

from matplotlib import pyplot as plt
from matplotlib import ticker
import pandas as pd

from tff_fedemb.models import pooled

# The shipped backbone `strided` with half as many channels, as many, and twice
# as many.
NARROW = functools.partial(
  pooled.create_strided, convolutions=((6, 5), (12, 3), (24, 3)), name="narrow"
)
MIDDLE = functools.partial(pooled.create_strided, name="middle")
WIDE = functools.partial(
  pooled.create_strided, convolutions=((24, 5), (48, 3), (96, 3)), name="wide"
)
_WIDTHS = ("NARROW", "MIDDLE", "WIDE")


def read(paths: Sequence[str]) -> pd.DataFrame:
  """Reads what `sweep_features` wrote to `WIDTH_CLASSES.json`.

  Args:
    paths: The files, each of a network of a width and pretrained on a number of
      classes.

  Returns:
    Columns `width`, `classes`, `method`, `epsilon`, `accuracy`, and `loss`:
    what noise takes from the accuracy of the same fit without.
  """
  rows = []
  for path in map(pathlib.Path, paths):
    width, classes = path.stem.split("_")
    for result in json.loads(path.read_text())["results"]:
      fits = result["accuracies"]
      rows.append(
        {
          "width": width,
          "classes": int(classes),
          "method": result["method"],
          "epsilon": float(result["target_epsilon"]),
          "accuracy": sum(fits) / len(fits),
        }
      )
  frame = pd.DataFrame(rows)
  key = ["width", "classes", "method"]
  free = frame[frame.epsilon == math.inf].set_index(key).accuracy
  frame = frame.join(free.rename("accuracy_without_noise"), on=key)
  frame["loss"] = frame.accuracy_without_noise - frame.accuracy
  return frame


def main(argv: Sequence[str]) -> None:
  """Draws a panel for each epsilon and method, and a line for each width."""
  _, output_png, *paths = argv
  frame = read(paths)
  frame = frame[frame.epsilon < math.inf]
  methods = sorted(frame.method.unique())
  epsilons = sorted(frame.epsilon.unique())
  figure, panels = plt.subplots(
    len(methods),
    len(epsilons),
    figsize=(2.4 * len(epsilons), 2.2 * len(methods)),
    sharex=True,
    sharey=True,
    squeeze=False,
    layout="constrained",
  )
  for (method, epsilon), some in frame.groupby(["method", "epsilon"]):
    axes = panels[methods.index(method), epsilons.index(epsilon)]
    for width in _WIDTHS:
      line = some[some.width == width].sort_values("classes")
      axes.plot(line.classes, 100 * line.loss, "o-", label=width.lower())
    axes.set(xscale="log", title=f"{method}, ε = {epsilon:g}")
    axes.title.set_size("small")
    classes = sorted(some.classes.unique())
    axes.set_xticks(classes, [f"{number / 1000:g}k" for number in classes])
    axes.xaxis.set_minor_locator(ticker.NullLocator())
  panels[0, 0].legend()
  figure.supxlabel("classes of pretraining")
  figure.supylabel("percentage points of accuracy that noise takes")
  figure.savefig(output_png)


if __name__ == "__main__":
  main(sys.argv)
