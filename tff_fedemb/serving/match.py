"""Identification: the nearest class of a gallery, accepted or not.

Program `match` reads its flags and calls `execute`. A query is compared with
every class of the gallery (`class_search`), by the cosine similarity of
embeddings. The most similar class is accepted if the similarity reaches a
threshold that the model carries. For a rate of strangers who may be accepted by
the gallery, the images of a class count together; for the false accept rate of
a pair, the nearest counts. The gallery is a folder, an index file, or both: the
images of the folder are added to the index.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import functools
import os
import pathlib
import unicodedata

from etils import epy

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import progress as progress_lib
from tff_fedemb import whole_files
from tff_fedemb.data import bad_examples
from tff_fedemb.evaluation import pairs
from tff_fedemb.records import output_files
from tff_fedemb.serving import class_search
from tff_fedemb.serving import gallery_index
from tff_fedemb.serving import image_sources
from tff_fedemb.serving import match_rules

with epy.lazy_imports():
  import pandas as pd

  from tff_fedemb.serving import saved_models

# Identity that the result gives to a query that is not accepted.
UNKNOWN = "unknown"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MatchConfig(match_rules.RuleConfig):
  """Settings of a match of queries with a gallery.

  Attributes:
    saved_model: Directory of the SavedModel, such as release/saved_model
      of a run, or a .tflite or .onnx file.
    gallery: Folder of known people or things: a sub-folder of images for each.
    query: Folder of images to identify, in it or in folders below it.
    index: File of the embeddings of a gallery. It is made if it is not there.
      Images of `gallery` that it does not have are added, files with other
      content are embedded anew, and files that moved are followed.
    index_kind: Search in a new index: exact, or by a graph, hnsw, which is
      faster for 100,000 images and more, and misses a few [exact].
    remove: Classes to remove from the index, before others are added: a flag
      for each, or commas between those that have none in their names.
    sync: Whether to remove images from the index that `gallery` does not have
      any more; otherwise a warning names them.
    output_csv: File for the result, in a directory that exists.
    overwrite: Whether to replace a file that exists.

  Raises:
    errors.FieldError: If there is neither a gallery nor an index, or fields
      contradict each other: for example a threshold beside a cohort, or a query
      without a file for the result.
  """

  saved_model: str
  gallery: str | None = None
  query: str | None = None
  index: str | None = None
  index_kind: str | None = config_lib.field(None, choices=gallery_index.KINDS)
  remove: tuple[str, ...] = config_lib.field((), may_have_commas=True)
  sync: bool = False
  output_csv: str | None = None
  overwrite: bool = False

  def __post_init__(self):
    super().__post_init__()
    if not self.index and not self.gallery:
      raise errors.FieldError("gallery", "be given, or an index", "neither")
    if self.sync and not (self.index and self.gallery):
      must = "be given with both index and gallery"
      raise errors.FieldError("sync", must, "one of them")
    if self.cohort and self.threshold is not None:
      must = "not be given with cohort"
      raise errors.FieldError("threshold", must, self.threshold)
    others = {*map(os.path.realpath, filter(None, [self.gallery, self.query]))}
    if self.cohort and os.path.realpath(self.cohort) in others:
      must = "be people who are neither in the gallery nor among the queries"
      raise errors.FieldError("cohort", must, self.cohort)
    if self.query or self.output_csv or not self.index:
      for name in ("query", "output_csv"):
        if not getattr(self, name):
          raise errors.FieldError(name, "be given", "none")


def execute(config: MatchConfig) -> None:
  """Matches every query, and writes and prints the result.

  While the index may change, its file is locked against other programs.

  Args:
    config: Settings of the match.

  Raises:
    errors.FieldError: If a setting does not suit the model, the gallery or the
      files; nothing is written.
    errors.DataError: If an image cannot be used. No result is written then; the
      index may have been, if the image is a query.
  """
  output_files.check(
    {"output_csv": config.output_csv},
    overwrite=config.overwrite,
    inputs={"index": [config.index] if config.index else []},
  )
  if not config.index or not (config.gallery or config.remove):
    _execute(config)
    return
  output_files.check({"index": config.index}, overwrite=True)
  with whole_files.locked(config.index):
    _execute(config)


def _execute(config: MatchConfig) -> None:
  """Does the work while no other program changes the index.

  The rule is found before images are embedded, and the index is written before
  the queries are read.

  Args:
    config: Settings of the match.

  Raises:
    errors.FieldError: As `execute`.
    errors.DataError: As `execute`.
  """
  model = saved_models.load(config.saved_model)
  index = _open_index(config)
  num_removed = index.remove(config.remove)
  gallery = None
  added = index.images[:0]
  changes = gallery_index.Changes([], [], 0, [])
  if config.gallery:
    gallery = gallery_index.open_folder(
      config.gallery, model.image_shape, on_bad_example=config.on_bad_example
    )
    listed = gallery_index.list_images(
      gallery, with_digests=config.index is not None
    )
    changes = index.follow(config.gallery, listed, sync=config.sync)
    added = listed.iloc[changes.new]
  rule = None
  if config.query:
    # Find the rule before the work: the model may have no such threshold.
    known = pd.concat([index.images, added])["name"]
    if known.empty:
      raise errors.FieldError("index", "have an image left", "none")
    num_images = len(known) - len(changes.replaced)
    rule = match_rules.find(config, model, known.nunique(), num_images)
    queries = image_sources.open_unlabelled(
      config.query,
      model.image_shape,
      on_bad_example=config.on_bad_example,
      name="query",
    )
  if gallery is not None and len(added):
    added = index.embed(model, gallery, added)
  warnings = gallery.warnings if gallery is not None else ()
  if config.index:
    warnings += _update(
      config, config.index, index, changes, added, num_removed
    )
  if rule is not None:
    warnings += _match_all(config, model, index, rule, queries)
    if UNKNOWN in set(index.images["name"]):
      warnings += (
        f"the gallery has a class {UNKNOWN}: column accepted tells it from"
        " queries that are like no class",
      )
  for warning in warnings:
    progress_lib.say(f"warning: {warning}")
  if rule is not None:
    progress_lib.say(f"Written to {config.output_csv}.")


def _update(
  config: MatchConfig,
  path: str,
  index: gallery_index.GalleryIndex,
  changes: gallery_index.Changes,
  added: pd.DataFrame,
  num_removed: int,
) -> tuple[str, ...]:
  """Writes the index if it changed, and prints how; returns warnings.

  An image whose file changed and cannot be read any more stays as it was,
  unless the index is to have what the folder has (`sync`).

  Args:
    config: Settings of the match.
    path: File of the index.
    index: The index as it is now.
    changes: Changes of the gallery's folder.
    added: Images that were added.
    num_removed: Number of images whose classes were removed.

  Returns:
    A line for each warning, on images that are gone or in several classes.
  """
  is_read = set(added["entry"])
  lost = [entry for entry in changes.replaced if entry not in is_read]
  replaced = [entry for entry in changes.replaced if entry in is_read]
  changes = dataclasses.replace(changes, replaced=replaced)
  warnings: tuple[str, ...] = ()
  if config.sync:
    index.forget(lost)
    num_removed += len(changes.gone) + len(lost)
  else:
    warnings = bad_examples.warn_of(
      f"{len(lost):,} images of the index stay, whose files cannot be read any"
      " more; sync removes them",
      lost,
    )
  num_added = len(added)
  if num_added or num_removed or changes.replaced or changes.num_moved:
    index.write(path)
  progress_lib.say(
    f"{path}: {len(index.images):,} images of"
    f" {index.images['name'].nunique():,} classes, {num_added:,} of them new;"
    f" {num_removed:,} removed."
  )
  warnings += _tell_changes(config, changes)
  copies = index.in_several_classes()
  same = f"{len(copies):,} images have the content of one of another class"
  return warnings + bad_examples.warn_of(same, copies)


def _tell_changes(
  config: MatchConfig,
  changes: gallery_index.Changes,
) -> tuple[str, ...]:
  """Prints which files were replaced or moved; returns a warning of others.

  Args:
    config: Settings of the match.
    changes: Changes of the gallery's folder.

  Returns:
    A warning on images that the folder does not have any more, unless they were
    removed.
  """
  if changes.replaced:
    first = bad_examples.name_first(changes.replaced)
    progress_lib.say(
      f"{len(changes.replaced):,} of the new replace others, of files that have"
      f" changed: {first}."
    )
  if changes.num_moved:
    progress_lib.say(f"{changes.num_moved:,} have moved to {config.gallery}.")
  if config.sync:
    return ()
  gone = f"{len(changes.gone):,} images of the index are not in"
  return bad_examples.warn_of(
    f"{gone} {config.gallery} any more; sync removes them", changes.gone
  )


def _open_index(config: MatchConfig) -> gallery_index.GalleryIndex:
  """Reads the index, or makes an empty one.

  Args:
    config: Settings of the match.

  Raises:
    errors.FieldError: If the file is no index, of another model, or of another
      kind than asked for.
  """
  digest = saved_models.digest(config.saved_model)
  if not config.index or not os.path.exists(config.index):
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
  rule: match_rules.Rule,
  source: image_sources.ImageSource,
) -> tuple[str, ...]:
  """Matches the queries, writes and prints the result; returns warnings.

  Args:
    config: Settings of the match, with a query and an output.
    model: The model.
    index: The gallery.
    rule: Rule by which a class is accepted.
    source: The queries.

  Returns:
    A line for each warning about the queries' images.

  Raises:
    errors.DataError: If a query cannot be used.
    errors.FieldError: If the gallery has nothing to compare a query with, or
      the result cannot be written.
  """
  root = str(config.query)
  embeddings, rows = image_sources.embed_rows(model, source, source.labels)
  queries = pairs.normalize(embeddings)
  paths = [source.paths[row] for row in rows]
  matches = class_search.find(index, queries, paths, rule.compared)
  score = rule.score(matches, queries)
  if not rule.takes_similarity:
    matches["score"] = score
  is_accepted = score >= rule.threshold
  identity = matches["nearest_class"].where(is_accepted, UNKNOWN)
  matches.insert(0, "path", list(map(os.fspath, paths)))
  matches.insert(1, "identity", identity)
  matches.insert(4, "accepted", is_accepted)
  known = {_plain(name): name for name in index.images["name"].unique()}
  matches["folder_class"] = [
    _class_of_folders(path.relative_to(root), known) for path in paths
  ]
  write = functools.partial(_write, matches)
  output_files.write({"output_csv": (str(config.output_csv), write)})
  _tell(matches, index, rule.words)
  recall = index.measure_recall(queries)
  if recall is not None:
    progress_lib.say(
      f"The index finds {recall:.4f} of the ten nearest images of queries; an"
      " exact one finds all."
    )
  return source.warnings


def _plain(name: str) -> str:
  """Returns a name with one form of each letter: file systems differ."""
  return unicodedata.normalize("NFC", name)


def _class_of_folders(
  path: pathlib.PurePath,
  known: Mapping[str, str],
) -> str | None:
  """Returns the class with the name of a folder above a query, if any.

  Args:
    path: Path of the query below the folder of queries.
    known: Classes of the gallery by their plain names.

  Returns:
    The class of the outermost such folder; None if there is none.
  """
  for folder in path.parts[:-1]:
    name = known.get(_plain(folder))
    if name is not None:
      return name
  return None


def _write(matches: pd.DataFrame, path: pathlib.Path) -> None:
  """Writes the matches as CSV, with true and false in lower case.

  Args:
    matches: A row for each query.
    path: The file.
  """
  accepted = matches.accepted.astype(str).str.lower()
  # A file name in another encoding is written as it is.
  matches.assign(accepted=accepted).to_csv(
    path,
    index=False,
    float_format="%.6f",
    lineterminator="\r\n",
    errors="surrogateescape",
  )


def _tell(
  matches: pd.DataFrame,
  index: gallery_index.GalleryIndex,
  words: str,
) -> None:
  """Prints how many queries were accepted, and how many rightly.

  Args:
    matches: A row for each query. `folder_class` is its class if a folder above
      it has the name of one.
    index: The gallery.
    words: Sentences on the threshold.
  """
  accepted = matches.accepted.sum()
  progress_lib.say(
    f"{len(matches):,} queries against {len(index.images):,} images of"
    f" {index.images['name'].nunique():,} classes: {accepted:,} accepted,"
    f" {len(matches) - accepted:,} unknown.\n{words}"
  )
  is_known = matches.folder_class.notna()
  known = matches[is_known]
  strangers = matches[~is_known]
  if known.empty:
    return
  is_right = known.nearest_class == known.folder_class
  right = is_right.sum()
  both = (is_right & known.accepted).sum()
  progress_lib.say(
    f"Of {len(known):,} queries in folders named like classes the nearest class"
    f" is right for {right:,} ({right / len(known):.4f}); right and accepted"
    f" {both:,} ({both / len(known):.4f})."
  )
  if not strangers.empty:
    progress_lib.say(
      f"Of {len(strangers):,} others {strangers.accepted.sum():,} are accepted."
    )
