"""Rules of a match: the similarity above which a query is recognized.

You give a threshold, or it comes from the model's card, for the false accept
rate of a pair of images or for the share of strangers who may be accepted by a
gallery. For that share, it may come from a folder of other people instead.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

from etils import epy
import numpy as np

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.data import bad_examples
from tff_fedemb.evaluation import cohorts
from tff_fedemb.evaluation import gallery_thresholds
from tff_fedemb.evaluation import identification
from tff_fedemb.serving import image_sources

with epy.lazy_imports():
  import pandas as pd

  from tff_fedemb.serving import saved_models


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuleConfig(config_lib.Config):
  """Settings of a rule.

  Attributes:
    fpir: False positive identification rate, the share of strangers' images
      that may be accepted by a gallery of this size; instead of `far`.
    fpir_certainty: Probability, for example 0.95, that the mean rate over
      galleries is at most `fpir`, given how few classes were held out. Without
      it, `fpir` is an estimate. Fewer people are found with it.
    cohort: Folder with one sub-folder of images a class, of people who are
      neither in the gallery nor among the queries. The threshold for `fpir`
      comes from them, not from the model, and the similarity of a query with
      the nearest of them counts against it, which finds more people.
    far: False accept rate, of which the model must carry a threshold: the share
      of pairs of two classes that are taken for one [0.001].
    threshold: Cosine similarity from which on a query is accepted, in place of
      those that the model carries and of rates.
    on_bad_example: Treatment of images that cannot be read; skip leaves them
      out and counts them.

  Raises:
    errors.FieldError: If a field is out of its range, or `fpir_certainty` or
      `cohort` is given without `fpir`.
  """

  fpir: float | None = config_lib.field(None, above=0, below=1)
  fpir_certainty: float | None = config_lib.field(None, minimum=0.5, below=1)
  cohort: str | None = None
  far: float | None = config_lib.field(None, above=0, below=1)
  threshold: float | None = config_lib.field(None, minimum=-1, maximum=1)
  on_bad_example: str = config_lib.field("fail", choices=bad_examples.POLICIES)

  def __post_init__(self):
    super().__post_init__()
    for name in ("fpir_certainty", "cohort"):
      if getattr(self, name) is not None and self.fpir is None:
        raise errors.FieldError("fpir", f"be given with {name}", "none")


@dataclasses.dataclass(frozen=True)
class Rule:
  """A rule that accepts the most similar class of a query, or does not.

  Attributes:
    threshold: Score from which on the class is accepted.
    words: Sentences on the threshold for the user.
    compared: Counterpart of a query, as in `class_search.find`.
    cohort: Classes by which similarities are normalized, if any.
    runner_up_weight: Share of the similarity with the next class that is
      subtracted, in [0, 1).
  """

  threshold: float
  words: str
  compared: str = identification.NEAREST
  cohort: cohorts.Cohort | None = None
  runner_up_weight: float = 0.0

  @property
  def takes_similarity(self) -> bool:
    """Whether the score is the similarity itself."""
    return self.cohort is None and not self.runner_up_weight

  def score(self, matches: pd.DataFrame, queries: np.ndarray) -> pd.Series:
    """Computes the scores that are compared with the threshold.

    Args:
      matches: Result of `class_search.find`, `q` rows.
      queries: Unit embeddings of the queries, `[q, dim]`.

    Returns:
      float64 `[q]`, with the rows of the matches.
    """
    # A threshold above 1 accepts nobody; in single precision it would be 1.
    score = matches["similarity"].astype(np.float64)
    if self.cohort is not None:
      score = score - self.cohort.offsets(queries)
    if self.runner_up_weight:
      # A class that a graph did not find is at most as similar as the nearest
      # one.
      runner_up = matches["runner_up_similarity"].fillna(score)
      score = score - self.runner_up_weight * runner_up
    return score


def find(
  config: RuleConfig,
  model: saved_models.Model,
  num_classes: int,
  num_images: int,
) -> Rule:
  """Finds the rule for a gallery.

  A given threshold comes first, then a cohort, then the model's card. Without a
  rate, the threshold is that of a false accept rate of 0.001.

  Args:
    config: Settings of the rule.
    model: The model, with its card.
    num_classes: Number of classes of the gallery.
    num_images: Number of its images.

  Returns:
    The rule, whose words say what it promises.

  Raises:
    errors.FieldError: If the model carries no threshold that is asked for, or
      the cohort is too small.
    errors.DataError: If an image of the cohort cannot be used.
  """
  if config.threshold is not None:
    return Rule(config.threshold, f"Threshold {config.threshold:.4f}, given.")
  if config.cohort:
    cohort, curve = _measure_cohort(config, model)
    by_cohort = functools.partial(gallery_thresholds.find, curve)
    return _keep_rate(config, by_cohort, num_classes, num_images, cohort=cohort)
  if model.card is None or model.card.verification is None:
    raise errors.FieldError(
      "threshold",
      "be given for a model that carries none: thresholds by images of users"
      " who train are not given away",
      "none",
      "binaries.evaluate finds thresholds on a folder of images.",
    )
  if config.fpir is not None:
    by_card = model.card.gallery_threshold
    return _keep_rate(config, by_card, num_classes, num_images)
  far = 1e-3 if config.far is None else config.far
  pair = model.card.threshold(far)
  words = (
    f"Threshold {pair['threshold']:.4f}, of false accept rate {far:g} for one"
    f" pair of images: a stranger, who is compared with {num_images:,}, is"
    f" accepted with a probability of up to {min(far * num_images, 1.0):.2g}."
    " fpir sets the rate of a gallery."
  )
  if pair["warning"]:
    words += f"\nwarning: the threshold is uncertain: {pair['warning']}"
  return Rule(pair["threshold"], words)


def _measure_cohort(
  config: RuleConfig,
  model: saved_models.Model,
) -> tuple[cohorts.Cohort, dict[str, Any]]:
  """Embeds the folder of a cohort; returns it, and its curve of thresholds.

  Args:
    config: Settings of the rule, with a cohort.
    model: The model.

  Returns:
    The cohort, and the thresholds for normalized similarities, as
    `gallery_thresholds.measure` returns them.

  Raises:
    errors.FieldError: If fewer than three classes have two images or more.
    errors.DataError: If an image cannot be used.
  """
  source = image_sources.open_folder(
    str(config.cohort),
    model.image_shape,
    on_bad_example=config.on_bad_example,
    name="cohort",
  )
  rows = np.arange(len(source.labels))
  embeddings, rows = image_sources.embed_rows(model, source, rows)
  labels = source.labels[rows]
  cohort = cohorts.Cohort(embeddings, labels)
  curve = gallery_thresholds.measure(embeddings, labels, normalized=True)
  if curve is None:
    must = "have 3 classes of two images or more that the model tells apart"
    raise errors.FieldError("cohort", must, config.cohort)
  return cohort, curve


def _keep_rate(
  config: RuleConfig,
  find_threshold: Callable[..., gallery_thresholds.Promise],
  num_classes: int,
  num_images: int,
  *,
  cohort: cohorts.Cohort | None = None,
) -> Rule:
  """Returns the rule for a rate of strangers, by a function that finds it.

  Args:
    config: Settings of the rule, with `fpir`.
    find_threshold: Maps a rate, classes of the gallery, mean images of a class
      and a certainty to a threshold.
    num_classes: Number of classes of the gallery, at least 1.
    num_images: Number of its images.
    cohort: Classes by which similarities are normalized, if any.

  Raises:
    errors.FieldError: If there is no threshold for such a rate and gallery.
  """
  promise = find_threshold(
    config.fpir,
    num_classes,
    num_images / num_classes,
    certainty=config.fpir_certainty,
  )
  words = _describe(promise, config, num_classes, num_images)
  weight = promise.runner_up_weight
  if weight:
    words += (
      f" Its score is the similarity less {weight:g} times that with the next"
      " class."
    )
  if cohort is not None:
    words += (
      " Its score is the similarity less half the mean with the nearest classes"
      f" of {config.cohort}."
    )
  return Rule(promise.threshold, words, promise.compared, cohort, weight)


def _describe(
  promise: gallery_thresholds.Promise,
  config: RuleConfig,
  num_classes: int,
  num_images: int,
) -> str:
  """Describes the promise of a threshold for a gallery, in sentences.

  Args:
    promise: The threshold and what it promises.
    config: Settings of the rule.
    num_classes: Number of classes of the gallery.
    num_images: Number of its images.

  Returns:
    Sentences; warnings are lines of their own.
  """
  words = (
    f"Threshold {promise.threshold:.4f}: a stranger's image is accepted with a"
    f" probability of {promise.rate:.3g} ({promise.low:.2g} to"
    f" {promise.high:.2g}), the mean over strangers and over galleries of"
    f" {num_classes:,} classes with {num_images / num_classes:.3g} images each."
  )
  if config.fpir_certainty is not None:
    words += (
      f" It is at most {config.fpir:g} with a certainty of"
      f" {config.fpir_certainty:g}, over the choice of held-out classes."
    )
  elif not promise.is_supported:
    least = "they support no fpir"
    if promise.smallest:
      least = f"the smallest that they support is {promise.smallest:g}"
    words += (
      f"\nwarning: {promise.num_classes:,} held-out classes are too few for"
      f" fpir {config.fpir:g} in a gallery of {num_classes:,}: {least}."
    )
  if promise.compared == identification.MEAN:
    words += "\nA query is compared with the mean of each class's images."
  return words
