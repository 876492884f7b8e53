"""One extraction of features, from its images to the files.

What `extract_features` does once its flags are read.
"""

from collections.abc import Mapping
import functools

import numpy as np

from experiments import image_sources
from experiments import output_files
from experiments import saved_models
from experiments.extraction import data_sets
from experiments.extraction import embeddings as embeddings_lib
from experiments.extraction import selection
from experiments.extraction import settings
from tasks import task as task_lib
from tff_fedemb import errors
from tff_fedemb.features import feature_files

# Each draw has a generator of its own, so that it does not depend on whether
# another one is made.
_CLASSES, _IMAGES, _TEST, _FREQUENCIES = range(4)


def execute(config: settings.ExtractionConfig) -> None:
  """Embeds the images, and writes and says what came of them.

  Args:
    config: What to do.

  Raises:
    errors.FieldError: If it cannot be done; nothing is written then.
    errors.DataError: If data cannot be used; neither then.
  """
  output_files.check(
    {"output": config.output, "test_output": config.test_output},
    overwrite=config.overwrite,
  )
  model = saved_models.Model(config.saved_model) if config.saved_model else None
  source = _open_source(config, model.image_shape if model else None)
  classes = selection.choose_classes(
    source,
    config.num_classes,
    _generator(config, _CLASSES),
    min_images=2 if config.test_output else 0,
  )
  rows = _choose_rows(config, source, classes)
  embeddings, rows = _embed(config, model, source, rows)
  if config.test_output:
    # Images that could not be read may have left one only.
    selection.check_testable(source, rows)
  labels = source.labels[rows]
  examples = feature_files.FeatureSet(
    embeddings,
    classes.number(labels),
    None if source.users is None else source.users[rows],
  )
  parts = _split(config, examples.labels)
  _write(config, examples, parts)
  print(f"Features of {source.description}:")
  for name, part in parts.items():
    print(f"  {getattr(config, name)}: {_describe(examples, part)}")
  for warning in (
    *source.warnings,
    *classes.warnings,
    *classes.find_empty(labels),
  ):
    print(f"warning: {warning}")


def _generator(
  config: settings.ExtractionConfig, draw: int
) -> np.random.Generator:
  return np.random.default_rng([config.seed, draw])


def _open_source(
  config: settings.ExtractionConfig,
  model_shape: image_sources.ImageShape | None,
) -> image_sources.ImageSource:
  # Grey images are taken as colours where nothing says what they are.
  size = config.image_size
  image_shape = model_shape or ((size, size, 3) if size else None)
  policy = config.on_bad_example
  if config.digits:
    return data_sets.open_digits(model_shape)
  if config.tfds:
    return data_sets.open_tfds(
      config.tfds,
      config.data_dir,
      config.tfds_split,
      image_shape=image_shape,
      on_bad_example=policy,
    )
  if config.image_folder:
    return image_sources.open_folder(
      config.image_folder, image_shape, on_bad_example=policy
    )
  source, _ = image_sources.open_task(
    config.task,
    task_lib.TaskConfig(
      config.data_dir,
      config.cache_dir,
      task_variant=config.task_variant,
      image_size=size or None,
      on_bad_example=policy,
    ),
    config.split,
    model_shape=model_shape,
  )
  return source


def _choose_rows(
  config: settings.ExtractionConfig,
  source: image_sources.ImageSource,
  classes: selection.Classes,
) -> np.ndarray:
  """Rows to embed, checked as far as they can be without being read."""
  rows = image_sources.draw_rows(
    np.flatnonzero(np.isin(source.labels, classes.labels)),
    config.max_images,
    _generator(config, _IMAGES),
  )
  if not len(rows):
    raise errors.FieldError(
      "output", "be of one image or more", f"{source.description} empty"
    )
  num_classes = len(np.unique(source.labels[rows]))
  if 0 < config.num_classes != num_classes:
    raise errors.FieldError(
      "num_classes",
      "be as many as have images that are taken"
      f" (--max_images={config.max_images})",
      f"images of {num_classes} of the {config.num_classes} drawn",
    )
  if config.test_output:
    selection.check_testable(source, rows)
  return rows


def _embed(
  config: settings.ExtractionConfig,
  model: saved_models.Model | None,
  source: image_sources.ImageSource,
  rows: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
  """Embeddings, and the rows that could be read."""
  embed = (
    model.embed
    if model
    else embeddings_lib.create_embedding(
      config.embedding,
      source.largest_value,
      num_features=config.random_features,
      gamma=config.gamma,
      seed=np.random.SeedSequence([config.seed, _FREQUENCIES]),
    )
  )
  flag = "saved_model" if model else "embedding"
  try:
    embeddings, kept = image_sources.embed_rows(embed, source, rows, flag=flag)
  except MemoryError as error:
    raise errors.FieldError(
      flag,
      "give embeddings that fit into memory (--max_images, --image_size and"
      " --random_features make them smaller)",
      f"those of {len(rows):,} images too large",
    ) from error
  if not len(kept):
    raise errors.FieldError(
      "on_bad_example",
      "leave one image or more",
      f"none of {len(rows):,} that can be read",
    )
  return embeddings, kept


def _split(
  config: settings.ExtractionConfig, labels: np.ndarray
) -> dict[str, np.ndarray | slice]:
  """Which examples are of which flag's file."""
  if not config.test_output:
    return {"output": slice(None)}
  train, test = selection.split_test(
    labels, config.test_share, _generator(config, _TEST)
  )
  return {"output": train, "test_output": test}


def _write(
  config: settings.ExtractionConfig,
  examples: feature_files.FeatureSet,
  parts: Mapping[str, np.ndarray | slice],
) -> None:
  def write_part(path, rows):
    # A part is a copy, of which there is one at a time.
    feature_files.write_features(path, examples.take(rows))

  output_files.write(
    {
      name: (getattr(config, name), functools.partial(write_part, rows=rows))
      for name, rows in parts.items()
    }
  )


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
