r"""Compares private classifiers on features over a range of epsilons.

  python -m binaries.sweep_features --train=train.npz --test=test.npz \
    --methods=sgd,least_squares,least_squares:covariance=per_class \
    --delta=1e-6 --output_json=sweep.json --output_png=sweep.png

Every method is fitted at every epsilon with every seed. With several files in
--train and --test, each is tested on the one at the same place. An accuracy is
that of a seed, the mean over pairs of files; mean and deviation are over seeds.
"""

from absl import flags

from experiments import command_line
from experiments import feature_settings
from experiments import feature_sweeps
from tff_fedemb import runtime
from tff_fedemb.features import examples

_TRAIN = flags.DEFINE_list("train", [], "Features to fit on.")
_TEST = flags.DEFINE_list(
  "test", [], "Features to test on, a file for each of --train."
)
_METHODS = flags.DEFINE_list(
  "methods",
  None,
  "How to fit: names, each with :NAME=VALUE for its hyperparameters if they"
  " are not to be the defaults, where None depends on size and noise:\n"
  + feature_settings.describe_methods()
  + " [all that can protect the --unit]",
)
_EPSILONS = flags.DEFINE_list(
  "epsilons",
  ["0.1", "0.5", "1", "2", "4", "8", "inf"],
  "Epsilons to stay within; inf: no noise.",
)
_DELTA = flags.DEFINE_float(
  "delta",
  None,
  "Delta of the guarantees, below one over the number of training examples,"
  " or of users with --unit=user.",
)
_UNIT = flags.DEFINE_string(
  "unit",
  "example",
  "What is protected: example, or user with all examples, by a federated fit"
  " on each --train with users. Its noise has no seed.",
)
_EXAMPLE_WEIGHTING = flags.DEFINE_string(
  "example_weighting",
  None,
  "With --unit=user: 'sum' counts as many examples as a user has, up to"
  " --user_clip_norm; 'mean' their mean as one, which is a short vector where"
  " they differ, and wants a small --user_clip_norm [sum].",
)
_USER_CLIP_NORM = flags.DEFINE_float(
  "user_clip_norm",
  None,
  "With --unit=user: bound of what a user sends in a round, in contributions"
  " of one example [1].",
)
_RUNTIME = flags.DEFINE_string(
  "runtime",
  None,
  f"With --unit=user: what runs the rounds, {' or '.join(runtime.RUNTIMES)}"
  " [in_process].",
)
_SEEDS = flags.DEFINE_list(
  "seeds",
  ["1", "2", "3", "4", "5"],
  "Of noise and sampling. With --unit=user there are as many fits, and none"
  " has a seed.",
)
_NUM_CLASSES = flags.DEFINE_integer(
  "num_classes",
  None,
  "Classes [1 + the largest label of both files of a pair, assumed to be"
  " public].",
)
_CLIP_NORM = flags.DEFINE_float(
  "clip_norm", 1.0, "Bound of the L2 norm of a feature vector."
)
_SCALING = flags.DEFINE_string(
  "scaling",
  "clip",
  f"How features are brought to it: {', '.join(examples.SCALINGS)}.",
)
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
  users = feature_settings.create_user_settings(
    _UNIT.value,
    runtime=_RUNTIME.value,
    example_weighting=_EXAMPLE_WEIGHTING.value,
    user_clip_norm=_USER_CLIP_NORM.value,
  )
  methods = _METHODS.value
  if methods is None:
    methods = feature_settings.method_names(_UNIT.value)
  return feature_sweeps.SweepConfig(
    train=tuple(_TRAIN.value),
    test=tuple(_TEST.value),
    methods=tuple(methods),
    epsilons=feature_settings.parse_epsilons(_EPSILONS.value),
    delta=_DELTA.value,
    seeds=feature_settings.parse_seeds(_SEEDS.value),
    output_json=_OUTPUT_JSON.value,
    output_png=_OUTPUT_PNG.value,
    num_classes=_NUM_CLASSES.value,
    clip_norm=_CLIP_NORM.value,
    scaling=_SCALING.value,
    title=_TITLE.value,
    caption=_CAPTION.value,
    overwrite=_OVERWRITE.value,
    users=users,
  )


def main() -> None:
  """Runs the fits that the flags describe."""
  feature_sweeps.execute(command_line.call_with_flags(_create_config))


if __name__ == "__main__":
  command_line.run(main)
