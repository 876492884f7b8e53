"""One extraction of features, from its images to the files.

What `extract_features` does once its flags are read.
"""

import functools

import numpy as np

from tff_fedemb import errors
from tff_fedemb import output_files
from tff_fedemb import runtime as runtimes
from tff_fedemb.data import bad_examples
from tff_fedemb.features import feature_files
from tff_fedemb.features.extraction import applications
from tff_fedemb.features.extraction import data_sets
from tff_fedemb.features.extraction import settings
from tff_fedemb.serving import image_sources
from tff_fedemb.serving import saved_models

# Each draw has a generator of its own, so that it does not depend on whether
# another one is made.
_CLASSES, _IMAGES, _TEST, _FREQUENCIES = range(4)


def execute(
  config: settings.ExtractionConfig,
  runtime: runtimes.RuntimeConfig = runtimes.RuntimeConfig(),  # noqa: B008
) -> None:
  """Embeds the images, and writes and says what came of them.

  Args:
    config: What to embed, and how.
    runtime: Where a model embeds them.

  Raises:
    errors.FieldError: If it cannot be done; nothing is written then.
    errors.DataError: If data cannot be used; neither then.
  """
  output_files.check(
    {"output": config.output, "test_output": config.test_output},
    overwrite=config.overwrite,
  )
  if runtime.runtime == "ray" and config.embedding:
    raise errors.FieldError(
      "saved_model", "be given with runtime ray, or application", "embedding"
    )
  model = _load_model(config)
  source = _open_source(config, model.image_shape if model else None)
  classes = _choose_classes(
    source.class_labels, config.num_classes, _generator(config, _CLASSES)
  )
  examples = _embed(config, runtime, model, source, classes)
  parts: dict[str, np.ndarray | slice] = {"output": slice(None)}
  if config.test_output:
    parts["output"], parts["test_output"] = _split_test(
      examples.labels, config.test_share, _generator(config, _TEST)
    )

  def write(path, rows):
    # A part is a copy, of which there is one at a time.
    feature_files.write_features(path, examples.take(rows))

  output_files.write(
    {
      name: (getattr(config, name), functools.partial(write, rows=rows))
      for name, rows in parts.items()
    }
  )
  print(f"Features of {source.description}:")
  for name, part in parts.items():
    print(f"  {getattr(config, name)}: {_describe(examples, part)}")
  empty = np.setdiff1d(np.arange(len(classes)), examples.labels)
  without = bad_examples.warn_of(
    f"{len(empty):,} of {len(classes):,} classes have no example, of labels",
    empty,
  )
  for warning in (*source.warnings, *without):
    print(f"warning: {warning}")


def _embed(
  config: settings.ExtractionConfig,
  runtime: runtimes.RuntimeConfig,
  model: saved_models.Model | None,
  source: image_sources.ImageSource,
  classes: np.ndarray,
) -> feature_files.FeatureSet:
  """Features of the images of some classes, which are labelled 0, 1, ..."""
  rows = source.draw_rows(
    config.max_images,
    np.flatnonzero(np.isin(source.labels, classes)),
    _generator(config, _IMAGES),
  )
  embed = model or config.embedding.create_map(
    source.largest_value, _generator(config, _FREQUENCIES)
  )
  with runtime.open_map() as map_fn:
    embeddings, rows = image_sources.embed_rows(
      embed,
      source,
      rows,
      flag=next(name for name in settings.EMBEDDERS if getattr(config, name)),
      map_fn=map_fn,
    )
  if not len(rows):
    raise errors.FieldError(
      "output", "be of one image or more that can be read", source.description
    )
  return feature_files.FeatureSet(
    embeddings,
    np.searchsorted(classes, source.labels[rows]).astype(np.int64),
    None if source.users is None else source.users[rows],
  )


def _generator(
  config: settings.ExtractionConfig, draw: int
) -> np.random.Generator:
  return np.random.default_rng([config.seed, draw])


def _load_model(config: settings.ExtractionConfig) -> saved_models.Model | None:
  if config.saved_model:
    return saved_models.load(
      config.saved_model,
      layer=config.layer,
      image_size=config.image_size,
      preprocess=config.preprocess,
    )
  if config.application:
    return applications.load(
      *(config.application, config.image_size, config.weights),
      layer=config.layer,
      seed=config.seed,
    )
  return None


def _open_source(
  config: settings.ExtractionConfig,
  model_shape: image_sources.ImageShape | None,
) -> image_sources.ImageSource:
  if config.digits:
    return data_sets.open_digits(model_shape)
  if config.tfds:
    size = config.image_size
    return data_sets.open_tfds(
      config.tfds,
      config.data_dir,
      config.tfds_split,
      image_shape=model_shape or ((size, size, 3) if size else None),
      on_bad_example=config.on_bad_example,
    )
  return config.open(config.split, model_shape)


def _choose_classes(
  labels: np.ndarray, num_classes: int, generator: np.random.Generator
) -> np.ndarray:
  """Draws classes at random, 0 for all, from all that the source has.

  Which ones does not depend on the images that a run takes, so that files of
  several runs agree in their labels.

  Returns:
    Labels of the classes, ascending, int64 `[K]`.

  Raises:
    errors.FieldError: If there are not as many.
  """
  if not num_classes:
    return labels
  if num_classes > len(labels):
    raise errors.FieldError(
      "num_classes", f"be at most {len(labels)}, all classes", num_classes
    )
  return np.sort(generator.choice(labels, size=num_classes, replace=False))


def _split_test(
  labels: np.ndarray, test_share: float, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
  """Draws the same share of each class, but at least one and not all.

  An only image of a class is one to train on. Returns rows to train on and rows
  to test on, ascending.

  Raises:
    errors.FieldError: If there are none to test on.
  """
  rows_of_test = []
  for label in np.unique(labels):
    rows = np.flatnonzero(labels == label)
    num_test = min(max(round(test_share * len(rows)), 1), len(rows) - 1)
    rows_of_test.append(generator.choice(rows, size=num_test, replace=False))
  test = np.sort(np.concatenate(rows_of_test))
  if not len(test):
    raise errors.FieldError(
      "test_output", "be of classes of two images or more", "none"
    )
  return np.setdiff1d(np.arange(len(labels)), test), test


def _describe(
  examples: feature_files.FeatureSet, rows: np.ndarray | slice
) -> str:
  """What a file holds, in a few words."""
  labels = examples.labels[rows]
  text = (
    f"{len(labels):,} examples of {len(np.unique(labels)):,} classes,"
    f" {examples.features.shape[1]:,} numbers each"
  )
  if examples.users is None:
    return text
  return f"{text}, {len(np.unique(examples.users[rows])):,} users"
