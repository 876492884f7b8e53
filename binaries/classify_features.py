r"""Fits a private linear classifier on files of features, and tests it.

  python -m binaries.classify_features --train=train.npz --test=test.npz \
    --method=feature_covariance --epsilon=2 --delta=1e-6 --seed=1 \
    --output_json=result.json

Files are .npz or .tfrecord with features and labels of examples. One example is
protected, or with --unit=user all examples of a user; the file gets the
accuracy, and what each release cost.
"""

from absl import flags

from experiments import command_line
from experiments import feature_runs
from experiments import feature_settings
from tff_fedemb import runtime
from tff_fedemb.features import examples
from tff_fedemb.features import registry

_TRAIN = flags.DEFINE_string("train", None, "Features to fit on.")
_TEST = flags.DEFINE_string("test", None, "Features to test on.")
_METHOD = flags.DEFINE_string(
  "method",
  "feature_covariance",
  f"How to fit: {', '.join(registry.METHODS)}.",
)
_HYPERPARAMETERS = flags.DEFINE_list(
  "hyperparameters",
  [],
  "Of the method, NAME=VALUE with commas between. With their defaults, where"
  " None depends on size and noise:\n" + feature_settings.describe_methods(),
)
_EPSILON = flags.DEFINE_float(
  "epsilon", None, "Epsilon to stay within; inf: no noise."
)
_DELTA = flags.DEFINE_float(
  "delta",
  None,
  "Delta of the guarantee, below one over the number of training examples, or"
  " of users with --unit=user (not needed without noise).",
)
_UNIT = flags.DEFINE_string(
  "unit",
  "example",
  "What is protected: example, or user with all examples, by a federated fit"
  " on a --train with users. Its noise has no seed.",
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
_SEED = flags.DEFINE_integer(
  "seed",
  None,
  "Of noise and sampling, for experiments: who knows it can take the noise"
  " away. Not with --unit=user [entropy of the operating system].",
)
_NUM_CLASSES = flags.DEFINE_integer(
  "num_classes",
  None,
  "Classes [1 + the largest label of both files, assumed to be public].",
)
_CLIP_NORM = flags.DEFINE_float(
  "clip_norm", 1.0, "Bound of the L2 norm of a feature vector."
)
_SCALING = flags.DEFINE_string(
  "scaling",
  "clip",
  f"How features are brought to it: {', '.join(examples.SCALINGS)}.",
)
_SPLIT = flags.DEFINE_list(
  "split",
  [],
  "Shares of the budget, such as covariance=0.3,gradient=0.7 [the method's].",
)
_OUTPUT_JSON = flags.DEFINE_string(
  "output_json", None, "File for the result, in a directory that exists."
)
_PREDICTIONS = flags.DEFINE_string(
  "predictions",
  None,
  "File (.npz) for predictions [n] and logits [n, num_classes] of the test"
  " examples [none].",
)
_OUTPUT_WEIGHTS = flags.DEFINE_string(
  "output_weights",
  None,
  "File (.npz) for the weights, coef [num_classes, dim] [none].",
)
_OVERWRITE = flags.DEFINE_bool(
  "overwrite", False, "Whether to replace files that exist."
)


def _create_settings() -> feature_settings.FitSettings:
  pairs = feature_settings.parse_pairs(
    "hyperparameters", _HYPERPARAMETERS.value
  )
  users = feature_settings.create_user_settings(
    _UNIT.value,
    runtime=_RUNTIME.value,
    example_weighting=_EXAMPLE_WEIGHTING.value,
    user_clip_norm=_USER_CLIP_NORM.value,
  )
  with feature_settings.hyperparameters_from(
    f"--hyperparameters must fit method {_METHOD.value}"
  ):
    return feature_settings.FitSettings(
      feature_settings.create_method(_METHOD.value, pairs),
      _EPSILON.value,
      _DELTA.value,
      clip_norm=_CLIP_NORM.value,
      scaling=_SCALING.value,
      split=feature_settings.parse_split(_SPLIT.value),
      seed=_SEED.value,
      users=users,
    )


def main() -> None:
  """Runs the fit that the flags describe."""
  feature_runs.execute(
    command_line.call_with_flags(
      feature_runs.ClassificationConfig,
      train=_TRAIN.value,
      test=_TEST.value,
      output_json=_OUTPUT_JSON.value,
      settings=command_line.call_with_flags(_create_settings),
      num_classes=_NUM_CLASSES.value,
      predictions=_PREDICTIONS.value,
      output_weights=_OUTPUT_WEIGHTS.value,
      overwrite=_OVERWRITE.value,
    )
  )


if __name__ == "__main__":
  command_line.run(main)
