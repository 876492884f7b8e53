r"""Compares private classifiers on features over a range of epsilons.

  python -m binaries.sweep_features --train=train.npz --test=test.npz \
    --methods=sgd,least_squares,least_squares:covariance=per_class \
    --delta=1e-6 --output_json=sweep.json --output_png=sweep.png

Every method is fitted at every epsilon with every seed. With several files in
--train and --test, each is tested on the one at the same place. An accuracy is
that of a seed, the mean over pairs of files; mean and deviation are over seeds.
"""

from absl import flags

from binaries import command_line
from binaries import feature_settings
from binaries import feature_sweeps
from tff_fedemb.features import examples
from tff_fedemb.features import registry

_TRAIN = flags.DEFINE_list("train", [], "Features to fit on.")
_TEST = flags.DEFINE_list(
    "test", [], "Features to test on, a file for each of --train."
)
_METHODS = flags.DEFINE_list(
    "methods", list(registry.METHODS),
    "How to fit: names, each with :NAME=VALUE for its hyperparameters if they"
    " are not to be the defaults, where None depends on size and noise:\n"
    + feature_settings.describe_methods(),
)  # fmt: skip
_EPSILONS = flags.DEFINE_list(
    "epsilons", ["0.1", "0.5", "1", "2", "4", "8", "inf"],
    "Epsilons to stay within; inf: no noise.",
)  # fmt: skip
_DELTA = flags.DEFINE_float(
    "delta", None,
    "Delta of the guarantees, below one over the number of training examples.",
)  # fmt: skip
_SEEDS = flags.DEFINE_list(
    "seeds", ["1", "2", "3", "4", "5"], "Of noise and sampling."
)
_NUM_CLASSES = flags.DEFINE_integer(
    "num_classes", None,
    "Classes [1 + the largest label of both files of a pair, assumed to be"
    " public].",
)  # fmt: skip
_CLIP_NORM = flags.DEFINE_float(
    "clip_norm", 1.0, "Bound of the L2 norm of a feature vector."
)
_SCALING = flags.DEFINE_string(
    "scaling", "clip",
    f"How features are brought to it: {', '.join(examples.SCALINGS)}.",
)  # fmt: skip
_OUTPUT_JSON = flags.DEFINE_string(
    "output_json", None, "File for all accuracies, in a directory that exists."
)
_OUTPUT_PNG = flags.DEFINE_string(
    "output_png", None, "File for the picture [none]."
)
_TITLE = flags.DEFINE_string(
    "title", "Accuracy against epsilon", "Of the picture."
)
_CAPTION = flags.DEFINE_string(
    "caption", None, "Below the picture [what was fitted]."
)
_OVERWRITE = flags.DEFINE_bool(
    "overwrite", False, "Whether to replace files that exist."
)


def _create_config() -> feature_sweeps.SweepConfig:
  return feature_sweeps.SweepConfig(
      train=tuple(_TRAIN.value),
      test=tuple(_TEST.value),
      methods=tuple(_METHODS.value),
      epsilons=feature_sweeps.parse_epsilons(_EPSILONS.value),
      delta=_DELTA.value,
      seeds=feature_sweeps.parse_seeds(_SEEDS.value),
      output_json=_OUTPUT_JSON.value,
      output_png=_OUTPUT_PNG.value,
      num_classes=_NUM_CLASSES.value,
      clip_norm=_CLIP_NORM.value,
      scaling=_SCALING.value,
      title=_TITLE.value,
      caption=_CAPTION.value,
      overwrite=_OVERWRITE.value,
  )


def main() -> None:
  """Runs the fits that the flags describe."""
  feature_sweeps.execute(command_line.call_with_flags(_create_config))


if __name__ == "__main__":
  command_line.run(main)
