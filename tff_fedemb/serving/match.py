"""Identification: the nearest class of a gallery, accepted or not.

`match` does this once its flags are read. A query is compared with every image
of the gallery, by the cosine similarity of their embeddings; its class is that
of the most similar one, and it is accepted from the threshold on that the model
carries for the share of strangers who may be accepted by such a gallery, or for
the false accept rate of a pair. The gallery is that of a folder, of an index
file, or both: the images of the folder are added to the index.
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
from tff_fedemb import whole_files
from tff_fedemb.data import bad_examples
from tff_fedemb.serving import gallery_index
from tff_fedemb.serving import image_sources

with epy.lazy_imports():
  import pandas as pd

  from tff_fedemb.serving import saved_models

# The identity of whoever is not accepted.
UNKNOWN = "unknown"
# So many queries at a time are compared with the whole gallery.
_BLOCK_ROWS = 512
# Images that a graph is asked for: the runner-up may lie beyond.
_MAX_NEIGHBOURS = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class MatchConfig(config_lib.Config):
  """Settings of a match of queries with a gallery.

  Attributes:
    saved_model: Directory of the SavedModel, such as release/saved_model
      of a run, or a .tflite or .onnx file.
    gallery: Folder with one sub-folder of images a class, of whoever is known.
    query: Folder of images to tell, in it or in folders below it.
    index: File of the embeddings of a gallery. It is made if it is not there;
      images of `gallery` that it does not have are added.
    index_kind: Search in a new index: exact, or by a graph, hnsw, which is
      faster for 100,000 images and more and misses a few [exact].
    remove: Classes to remove from the index, before others are added.
    fpir: False positive identification rate, the share of strangers' images
      that may be accepted by a gallery of this size; instead of `far`.
    far: False accept rate, of which the model must carry a threshold: the share
      of pairs of two classes that are taken for one [0.001].
    threshold: Cosine similarity from which on a query is accepted, in place of
      those that the model carries.
    output_csv: File for the result, in a directory that exists.
    on_bad_example: Treatment of images that cannot be read; skip leaves them
      out and counts them.
    overwrite: Whether to replace a file that exists.
  """

  saved_model: str
  gallery: str | None = None
  query: str | None = None
  index: str | None = None
  index_kind: str | None = config_lib.field(None, choices=gallery_index.KINDS)
  remove: tuple[str, ...] = ()
  fpir: float | None = config_lib.field(None, above=0, below=1)
  far: float | None = config_lib.field(None, above=0, below=1)
  threshold: float | None = config_lib.field(None, minimum=-1, maximum=1)
  output_csv: str | None = None
  on_bad_example: str = config_lib.field("fail", choices=bad_examples.POLICIES)
  overwrite: bool = False

  def __post_init__(self):
    super().__post_init__()
    names = ("fpir", "far", "threshold")
    given = [name for name in names if getattr(self, name) is not None]
    if self.fpir is not None and len(given) > 1:
      must = "be the only one of fpir, far and threshold"
      raise errors.FieldError("fpir", must, f"{given[1]} too")
    if not self.index and not self.gallery:
      raise errors.FieldError("gallery", "be given, or an index", "neither")
    if self.query or self.output_csv or not self.index:
      for name in ("query", "output_csv"):
        if not getattr(self, name):
          raise errors.FieldError(name, "be given", "none")
    for name in ("index_kind", "remove"):
      if getattr(self, name) and not self.index:
        raise errors.FieldError(name, "be given with an index", "none")


@dataclasses.dataclass(frozen=True)
class _Rule:
  """The similarity at which a query is accepted, and where it comes from.

  Attributes:
    threshold: Cosine similarity from which on a query is accepted.
    origin: Rate that the threshold is for, in words.
    recall: Recall of pairs, at the false accept rate; `None` for another rule.
    notes: Lines for the user on the threshold.
  """

  threshold: float
  origin: str
  recall: float | None = None
  notes: tuple[str, ...] = ()


def execute(config: MatchConfig) -> None:
  """Matches every query, and writes and prints the result.

  Raises:
    errors.FieldError: If it cannot be done; nothing is written then.
    errors.DataError: If an image cannot be used; neither then.
  """
  output_files.check(
    {"output_csv": config.output_csv}, overwrite=config.overwrite
  )
  if not config.index or not (config.gallery or config.remove):
    _execute(config)
    return
  output_files.check({"index": config.index}, overwrite=True)
  with whole_files.locked(config.index):
    _execute(config)


def _execute(config: MatchConfig) -> None:
  """As `execute`, while no other program changes the index."""
  model = saved_models.load(config.saved_model)
  index = _open_index(config)
  num_removed = index.remove(config.remove)
  new = None
  if config.gallery:
    new = index.list_new(
      config.gallery, model, on_bad_example=config.on_bad_example
    )
  rule = None
  if config.query:
    # Before the work: a model may have no such threshold.
    added = new.names(new.rows) if new else []
    names = index.names | set(added)
    if not names:
      raise errors.FieldError("index", "have an image left", "none")
    rule = _find_rule(config, model, len(names), len(index) + len(added))
  num_added = index.add_new(model, new) if new else 0
  warnings = new.source.warnings if new else ()
  if config.index:
    if num_added or num_removed:
      index.write(config.index)
    print(
      f"{config.index}: {len(index):,} images of {len(index.names):,} classes,"
      f" {num_added:,} of them new; {num_removed:,} removed."
    )
  if rule is not None:
    warnings += _match_all(config, model, index, rule)
  for warning in warnings:
    print(f"warning: {warning}")
  if rule is not None:
    print(f"Written to {config.output_csv}.")


def _open_index(config: MatchConfig) -> gallery_index.GalleryIndex:
  """Reads the index, or makes an empty one."""
  if not config.index:
    return gallery_index.GalleryIndex("", gallery_index.EXACT)
  digest = saved_models.digest(config.saved_model)
  if not os.path.exists(config.index):
    kind = config.index_kind or gallery_index.EXACT
    return gallery_index.GalleryIndex(digest, kind)
  index = gallery_index.read(config.index, digest)
  if config.index_kind not in (None, index.kind):
    must = f"be that of {config.index}, {index.kind}"
    raise errors.FieldError("index_kind", must, config.index_kind)
  return index


def _match_all(
  config: MatchConfig,
  model: saved_models.Model,
  index: gallery_index.GalleryIndex,
  rule: _Rule,
) -> tuple[str, ...]:
  """Matches the queries, writes and tells; returns what is odd about them."""
  source = image_sources.open_unlabelled(
    str(config.query),
    model.image_shape,
    on_bad_example=config.on_bad_example,
    name="query",
  )
  queries = gallery_index.embed(model, source, source.labels)
  matches = _match(index, queries, rule.threshold)
  known = {_plain(name): name for name in index.names}
  matches["folder_class"] = [
    _find_class(path, str(config.query), known) for path in queries.paths
  ]
  output_files.write(
    {"output_csv": (str(config.output_csv), lambda path: _write(path, matches))}
  )
  _tell(matches, index, rule)
  recall = index.measure_recall(queries.embeddings)
  if recall is not None:
    print(
      f"The index finds {recall:.4f} of the ten nearest images of queries; an"
      " exact one finds all."
    )
  return source.warnings


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
      smallest = f"{promise.smallest:g}" if promise.smallest else "none"
      notes.append(
        f"warning: {promise.num_classes:,} held-out classes are too few for"
        f" fpir {config.fpir:g} in a gallery of {num_classes:,}: the smallest"
        f" that they support is {smallest}."
      )
    origin = f"false positive identification rate {config.fpir:g}"
    return _Rule(promise.threshold, origin, notes=tuple(notes))
  far = 1e-3 if config.far is None else config.far
  pair = model.card.threshold(far)
  notes = [
    "The false accept rate is that of one pair of images: a stranger, who is"
    f" compared with {num_images:,}, is accepted with a probability of up to"
    f" {min(far * num_images, 1.0):.2g}. fpir sets the rate of a gallery."
  ]
  if pair["warning"]:
    notes.append(f"warning: the threshold is uncertain: {pair['warning']}")
  origin = f"false accept rate {far:g}"
  return _Rule(pair["threshold"], origin, pair["recall"], tuple(notes))


def _plain(name: str) -> str:
  """A name in one form of each letter: file systems differ in them."""
  return unicodedata.normalize("NFC", name)


def _find_class(path: str, root: str, known: Mapping[str, str]) -> str | None:
  """The class that a folder on the way to a query is named like, if any."""
  for part in pathlib.Path(path).relative_to(root).parts[:-1]:
    if _plain(part) in known:
      return known[_plain(part)]
  return None


def _match(
  index: gallery_index.GalleryIndex,
  queries: gallery_index.Embedded,
  threshold: float,
) -> pd.DataFrame:
  """Finds the nearest image of the gallery for each query, in its row.

  Classes are names; there is no runner-up in a gallery of one class.
  """
  # An image is not compared with itself.
  own: dict[str, list[int]] = {os.path.realpath(p): [] for p in queries.paths}
  files = index.images["path"].to_numpy()
  for row, path in enumerate(files):
    # Those of a file are real already.
    if (real := path if index.model else os.path.realpath(path)) in own:
      own[real].append(row)
  # So many may be of the nearest class, and one more is the runner-up.
  count = index.largest_class + 1 + max(map(len, own.values()))
  if index.kind == gallery_index.HNSW:
    count = min(count, _MAX_NEIGHBOURS)
  classes, names = pd.factorize(index.images["name"])
  # The last name is none.
  names = np.append(names, None)
  blocks = []
  for start in range(0, len(queries.paths), _BLOCK_ROWS):
    some = slice(start, start + _BLOCK_ROWS)
    paths = queries.paths[some]
    similarities, rows = index.search(queries.embeddings[some], count)
    for row, path in enumerate(paths):
      is_own = np.isin(rows[row], own[os.path.realpath(path)])
      similarities[row, is_own] = -np.inf
    labels = classes[rows]
    similarity, nearest, image = _take_best(similarities, labels, rows)
    if (similarity == -np.inf).any():
      found = paths[similarity.argmin()]
      raise errors.FieldError("gallery", "have others than the query", found)
    similarities[labels == nearest[:, None]] = -np.inf
    runner_up, second, _ = _take_best(similarities, labels, rows)
    is_other = runner_up > -np.inf
    is_accepted, nearest = similarity >= threshold, names[nearest]
    blocks.append(
      pd.DataFrame(
        {
          "path": paths,
          "identity": np.where(is_accepted, nearest, UNKNOWN),
          "nearest_class": nearest,
          "similarity": similarity,
          "accepted": is_accepted,
          "nearest_image": files[image],
          "runner_up": names[np.where(is_other, second, -1)],
          "runner_up_similarity": np.where(is_other, runner_up, np.nan),
        }
      )
    )
  return pd.concat(blocks)


def _take_best(
  similarities: np.ndarray, *others: np.ndarray
) -> list[np.ndarray]:
  """Returns the largest similarity of each row, and others in its place."""
  best = similarities.argmax(axis=1)[:, None]
  return [
    np.take_along_axis(each, best, axis=1)[:, 0]
    for each in (similarities, *others)
  ]


def _write(path: pathlib.Path, matches: pd.DataFrame) -> None:
  accepted = matches.accepted.astype(str).str.lower()
  # Names that are no text are written as they are.
  matches.assign(accepted=accepted).to_csv(
    path,
    index=False,
    float_format="%.6f",
    lineterminator="\r\n",
    errors="surrogateescape",
  )


def _tell(
  matches: pd.DataFrame, index: gallery_index.GalleryIndex, rule: _Rule
) -> None:
  """Prints the outcome in a few lines."""
  accepted = matches.accepted.sum()
  print(
    f"{len(matches):,} queries against {len(index):,} images of"
    f" {len(index.names):,} classes: {accepted:,} accepted,"
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
  recall = ""
  if rule.recall is not None:
    recall = f"; the model's recall at this rate is {rule.recall:.4f}"
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
