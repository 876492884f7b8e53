"""One extraction of features, from its images to the files.

What `extract_features` does once its flags are read.
"""

import functools

import numpy as np
from sklearn import datasets

from tff_fedemb import errors
from tff_fedemb import output_files
from tff_fedemb import runtime as runtimes
from tff_fedemb.data import bad_examples
from tff_fedemb.features import feature_files
from tff_fedemb.features.extraction import applications
from tff_fedemb.features.extraction import settings
from tff_fedemb.serving import image_sources
from tff_fedemb.serving import saved_models

# Each draw has a generator of its own, so that it does not depend on whether
# another one is made.
_CLASSES, _IMAGES, _TEST = range(3)


def execute(
  config: settings.ExtractionConfig,
  runtime: runtimes.RuntimeConfig = runtimes.RuntimeConfig(),  # noqa: B008
) -> None:
  """Embeds the images, and writes and says what came of them.

  Args:
    config: Settings of the extraction.
    runtime: Runtime that embeds the images.

  Raises:
    errors.FieldError: If it cannot be done; nothing is written then.
    errors.DataError: If data cannot be used; neither then.
  """
  output_files.check(
    {"output": config.output, "test_output": config.test_output},
    overwrite=config.overwrite,
  )
  if runtime.runtime == "ray" and config.embedding:
    must = "be given with runtime ray, or application"
    raise errors.FieldError("saved_model", must, "embedding")
  model = _load_model(config)
  source = _open_source(config, model.image_shape if model else None)
  classes = _choose_classes(config, source.class_labels)
  examples = _embed(config, runtime, model, source, classes)
  parts: dict[str, np.ndarray | slice] = {"output": slice(None)}
  if config.test_output:
    parts["output"], parts["test_output"] = _split_test(config, examples.labels)

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
    config.generator(_IMAGES),
  )
  with runtime.open_map() as map_fn:
    embeddings, rows = image_sources.embed_rows(
      model or functools.partial(_take_pixels, largest=source.largest_value),
      source,
      rows,
      map_fn=map_fn,
    )
  return feature_files.FeatureSet(
    embeddings,
    np.searchsorted(classes, source.labels[rows]).astype(np.int64),
    None if source.users is None else source.users[rows],
  )


def _take_pixels(images: np.ndarray, *, largest: int) -> np.ndarray:
  """Pixels in [0, 1], float32 `[b, d]`."""
  flat = images.reshape(len(images), -1).astype(np.float32)
  return flat / np.float32(largest)


def _load_model(config: settings.ExtractionConfig) -> saved_models.Model | None:
  size, layer = config.image_size, config.layer
  if config.saved_model:
    return saved_models.load(
      config.saved_model,
      layer=layer,
      image_size=size,
      preprocess=config.preprocess,
    )
  if config.application:
    named = (config.application, size, config.weights)
    return applications.load(*named, layer=layer, seed=config.seed)
  return None


def _open_source(
  config: settings.ExtractionConfig,
  model_shape: image_sources.ImageShape | None,
) -> image_sources.ImageSource:
  if config.digits:
    # Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits", UCI
    # Machine Learning Repository, 1998: its test part, 8x8 pixels of 0 to 16.
    digits = datasets.load_digits()
    images = digits.images.astype(np.uint8)
    return image_sources.ImageSource(
      "scikit-learn's digits",
      digits.target.astype(np.int64),
      lambda rows: iter([(rows, images[rows])]),
      largest_value=16,
    )
  size = config.image_size
  if config.image_folder and size:
    # Grey images are taken as colours where nothing says what they are.
    model_shape = model_shape or (size, size, 3)
  return config.open(config.split, model_shape)


def _choose_classes(
  config: settings.ExtractionConfig, labels: np.ndarray
) -> np.ndarray:
  """Draws classes at random, 0 for all, from all that the source has.

  Which ones does not depend on the images that a run takes, so that files of
  several runs agree in their labels.

  Returns:
    Labels of the classes, ascending, int64 `[K]`.

  Raises:
    errors.FieldError: If there are not as many.
  """
  size = config.num_classes
  if not size:
    return labels
  if size > len(labels):
    must = f"be at most {len(labels)}, all classes"
    raise errors.FieldError("num_classes", must, size)
  return np.sort(config.generator(_CLASSES).choice(labels, size, replace=False))


def _split_test(
  config: settings.ExtractionConfig, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Draws the same share of each class, but at least one and not all.

  An only image of a class is one to train on. Returns rows to train on and rows
  to test on, ascending.

  Raises:
    errors.FieldError: If there are none to test on.
  """
  rows_of_test, generator = [], config.generator(_TEST)
  for label in np.unique(labels):
    rows = np.flatnonzero(labels == label)
    num_test = min(max(round(config.test_share * len(rows)), 1), len(rows) - 1)
    rows_of_test.append(generator.choice(rows, size=num_test, replace=False))
  test = np.sort(np.concatenate(rows_of_test))
  if not len(test):
    must = "be of classes of two images or more"
    raise errors.FieldError("test_output", must, "none")
  return np.setdiff1d(np.arange(len(labels)), test), test


def _describe(
  examples: feature_files.FeatureSet, rows: np.ndarray | slice
) -> str:
  """Describes a file in a few words."""
  labels = examples.labels[rows]
  text = (
    f"{len(labels):,} examples of {len(np.unique(labels)):,} classes,"
    f" {examples.features.shape[1]:,} numbers each"
  )
  if examples.users is None:
    return text
  return f"{text}, {len(np.unique(examples.users[rows])):,} users"
