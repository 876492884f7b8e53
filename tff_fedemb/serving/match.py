"""Who is in the picture: nearest class of a gallery, accepted or not.

What `match` does once its flags are read. A query is compared with every image
of the gallery, by the cosine similarity of their embeddings; its class is that
of the most similar one, and it is accepted from the threshold on that the model
carries for the share of strangers who may be accepted by such a gallery, or for
the false accept rate of a pair.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import os
import pathlib
import unicodedata

from etils import epy
import numpy as np

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import output_files
from tff_fedemb.data import bad_examples
from tff_fedemb.serving import image_sources

with epy.lazy_imports():
  import pandas as pd

  from tff_fedemb.data import image_folder
  from tff_fedemb.serving import saved_models

# The identity of whoever is not accepted.
UNKNOWN = "unknown"
# Of queries at a time, against the whole gallery.
_BLOCK_ROWS = 512
# Below every cosine: of an image with itself.
_NONE = -2.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class MatchConfig(config_lib.Config):
  """What to match with what, how strictly, and where to write.

  Attributes:
    saved_model: Directory of the SavedModel, such as release/saved_model
      of a run, or a .tflite file.
    gallery: Folder with one sub-folder of images a class, of whoever is known.
    query: Folder of images to tell, in it or in folders below it.
    fpir: False positive identification rate, the share of strangers' images
      that may be accepted by a gallery of this size; instead of `far`.
    far: False accept rate, of which the model must carry a threshold: the share
      of pairs of two classes that are taken for one [0.001].
    threshold: Cosine similarity from which on a query is accepted, in place of
      those that the model carries.
    output_csv: File for the result, in a directory that exists.
    on_bad_example: What to do about images that cannot be read, skip leaves
      them out and counts them.
    overwrite: Whether to replace a file that exists.
  """

  saved_model: str
  gallery: str
  query: str
  fpir: float | None = config_lib.field(None, above=0, below=1)
  far: float | None = config_lib.field(None, above=0, below=1)
  threshold: float | None = config_lib.field(None, minimum=-1, maximum=1)
  output_csv: str
  on_bad_example: str = config_lib.field("fail", choices=bad_examples.POLICIES)
  overwrite: bool = False

  def __post_init__(self):
    super().__post_init__()
    others = {"far": self.far, "threshold": self.threshold}
    given = [name for name, value in others.items() if value is not None]
    if self.fpir is not None and given:
      raise errors.FieldError(
        "fpir", "be the only one of fpir, far and threshold", f"{given[0]} too"
      )


@dataclasses.dataclass(frozen=True)
class _Rule:
  """From which similarity on a query is accepted.

  Attributes:
    threshold: That similarity.
    origin: What it is the threshold of, in words.
    recall: Of pairs, at the false accept rate; `None` for another rule.
    notes: What the user should know of it, a line each.
  """

  threshold: float
  origin: str
  recall: float | None = None
  notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class _Embedded:
  """Images with unit-norm embeddings float64 `[n, dim]`, and their classes."""

  paths: list[str]
  embeddings: np.ndarray
  labels: np.ndarray


def execute(config: MatchConfig) -> None:
  """Matches every query, and writes and prints the result.

  Raises:
    errors.FieldError: If it cannot be done; nothing is written then.
    errors.DataError: If an image cannot be used; neither then.
  """
  output_files.check(
    {"output_csv": config.output_csv}, overwrite=config.overwrite
  )
  model = saved_models.load(config.saved_model)
  listed, source = image_sources.open_folder(
    config.gallery,
    model.image_shape,
    on_bad_example=config.on_bad_example,
    name="gallery",
    for_pairs=False,
  )
  rule = _find_rule(
    config, model, len(np.unique(listed.labels)), len(listed.labels)
  )
  gallery = _embed(model, source, listed.paths)
  paths = image_folder.list_all_images(config.query, name="query")
  found = {_plain(name): i for i, name in enumerate(listed.class_names)}
  labels = [_find_class(path, config.query, found) for path in paths]
  queries_source = image_sources.open_files(
    f"images in {config.query}",
    paths,
    np.array(labels, np.int64),
    model.image_shape,
    on_bad_example=config.on_bad_example,
  )
  queries = _embed(model, queries_source, paths)
  matches = _match(gallery, queries, listed.class_names, rule.threshold)
  output_files.write(
    {"output_csv": (config.output_csv, lambda path: _write(path, matches))}
  )
  _tell(matches, gallery, rule)
  for warning in (*source.warnings, *queries_source.warnings):
    print(f"warning: {warning}")
  print(f"Written to {config.output_csv}.")


def _find_rule(
  config: MatchConfig,
  model: saved_models.Model,
  num_classes: int,
  num_images: int,
) -> _Rule:
  """Finds the threshold to use for a gallery of so many classes and images."""
  if config.threshold is not None:
    return _Rule(config.threshold, "given")
  if model.card is None or model.card.verification is None:
    raise errors.FieldError(
      "threshold",
      "be given for a model that carries none: thresholds by images of users"
      " who train are not given away",
      "none",
      "binaries.evaluate finds thresholds on a folder of images.",
    )
  if config.fpir is not None:
    promise = model.card.gallery_threshold(
      config.fpir, num_classes, num_images / num_classes
    )
    notes = [
      f"A stranger's image is accepted with a probability of {config.fpir:g}"
      f" ({promise.low:.2g} to {promise.high:.2g}), the mean over strangers and"
      f" over galleries of {num_classes:,} classes with"
      f" {num_images / num_classes:.3g} images each."
    ]
    if not promise.is_supported:
      smallest = (
        f"the smallest that they support is {promise.smallest:g}"
        if promise.smallest
        else "they support none"
      )
      notes.append(
        f"warning: {promise.num_classes:,} held-out classes are too few for"
        f" fpir {config.fpir:g} in a gallery of {num_classes:,}: {smallest}."
      )
    return _Rule(
      promise.threshold,
      f"false positive identification rate {config.fpir:g}",
      notes=tuple(notes),
    )
  far = 1e-3 if config.far is None else config.far
  pair = model.card.threshold(far)
  notes = [
    "The false accept rate is that of one pair of images: a stranger, who is"
    f" compared with {num_images:,}, is accepted with a probability of up to"
    f" {min(far * num_images, 1.0):.2g}. fpir sets the rate of a gallery."
  ]
  if pair["warning"]:
    notes.append(f"warning: the threshold is uncertain: {pair['warning']}")
  return _Rule(
    pair["threshold"], f"false accept rate {far:g}", pair["recall"], (*notes,)
  )


def _plain(name: str) -> str:
  """A name in one form of each letter: file systems differ in them."""
  return unicodedata.normalize("NFC", name)


def _find_class(path: pathlib.Path, root: str, known: Mapping[str, int]) -> int:
  """The class that a folder on the way to a query is named like, or -1."""
  for part in path.relative_to(root).parts[:-1]:
    if _plain(part) in known:
      return known[_plain(part)]
  return -1


def _embed(
  model: saved_models.Model,
  source: image_sources.ImageSource,
  paths: tuple[pathlib.Path, ...],
) -> _Embedded:
  embeddings, rows = image_sources.embed_rows(
    model.embed, source, np.arange(len(paths))
  )
  if not rows.size:
    raise errors.DataError(
      f"{source.description} must have one that can be read, found none of"
      f" {len(paths):,}."
    )
  embeddings = embeddings.astype(np.float64)
  norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
  embeddings /= np.where(norms > 0, norms, 1.0)
  return _Embedded(
    [os.fspath(paths[row]) for row in rows], embeddings, source.labels[rows]
  )


def _match(
  gallery: _Embedded,
  queries: _Embedded,
  class_names: tuple[str, ...],
  threshold: float,
) -> pd.DataFrame:
  """Finds the nearest image of the gallery for each query, in its row.

  Classes are names; there is no runner-up in a gallery of one class, and no
  folder's class of a stranger.
  """
  # An image is not compared with itself.
  places: dict[str, list[int]] = {}
  for column, path in enumerate(gallery.paths):
    places.setdefault(os.path.realpath(path), []).append(column)
  # The gallery is listed class by class.
  classes, starts = np.unique(gallery.labels, return_index=True)
  names = np.array([*class_names, None], object)
  blocks = []
  for start in range(0, len(queries.paths), _BLOCK_ROWS):
    some = slice(start, start + _BLOCK_ROWS)
    paths = queries.paths[some]
    similarities = queries.embeddings[some] @ gallery.embeddings.T
    for row, path in enumerate(paths):
      similarities[row, places.get(os.path.realpath(path), [])] = _NONE
    best = np.maximum.reduceat(similarities, starts, axis=1)
    first, similarity = best.argmax(axis=1), best.max(axis=1)
    if (similarity == _NONE).any():
      raise errors.FieldError(
        "gallery",
        "have other images than the query",
        paths[similarity.argmin()],
      )
    np.put_along_axis(best, first[:, np.newaxis], _NONE, axis=1)
    second, runner_up = best.argmax(axis=1), best.max(axis=1)
    blocks.append(
      pd.DataFrame(
        {
          "path": paths,
          "identity": np.where(
            similarity >= threshold, names[classes[first]], UNKNOWN
          ),
          "nearest_class": names[classes[first]],
          "similarity": similarity,
          "accepted": similarity >= threshold,
          "nearest_image": [
            gallery.paths[column] for column in similarities.argmax(axis=1)
          ],
          "runner_up": names[np.where(runner_up > _NONE, classes[second], -1)],
          "runner_up_similarity": np.where(
            runner_up > _NONE, runner_up, np.nan
          ),
          # The last name is none.
          "folder_class": names[queries.labels[some]],
        }
      )
    )
  return pd.concat(blocks)


def _write(path: pathlib.Path, matches: pd.DataFrame) -> None:
  accepted = matches.accepted.map({True: "true", False: "false"})
  # Names that are no text are written as they are.
  matches.assign(accepted=accepted).to_csv(
    path,
    index=False,
    float_format="%.6f",
    lineterminator="\r\n",
    errors="surrogateescape",
  )


def _tell(matches: pd.DataFrame, gallery: _Embedded, rule: _Rule) -> None:
  """Prints the outcome in a few lines."""
  accepted = matches.accepted.sum()
  print(
    f"{len(matches):,} queries against {len(gallery.paths):,} images of"
    f" {len(np.unique(gallery.labels)):,} classes: {accepted:,} accepted,"
    f" {len(matches) - accepted:,} unknown (threshold {rule.threshold:.4f},"
    f" {rule.origin})."
  )
  for note in rule.notes:
    print(note)
  known = matches[matches.folder_class.notna()]
  if known.empty:
    return
  is_right = known.nearest_class == known.folder_class
  right, both = is_right.sum(), (is_right & known.accepted).sum()
  recall = (
    ""
    if rule.recall is None
    else f"; the model's recall at this rate is {rule.recall:.4f}"
  )
  print(
    f"Of {len(known):,} queries in folders named like classes the nearest class"
    f" is right for {right:,} ({right / len(known):.4f}); right and accepted"
    f" {both:,} ({both / len(known):.4f}{recall})."
  )
  strangers = matches[matches.folder_class.isna()]
  if not strangers.empty:
    print(
      f"Of {len(strangers):,} others {strangers.accepted.sum():,} are accepted."
    )
