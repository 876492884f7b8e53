"""Cards of models: their thresholds and their guarantee.

A model that leaves its run carries a card. The card says from which similarity
on two images count as one class, how images are preprocessed for the model, and
what may be claimed for the users who trained it. In the spirit of Mitchell et
al., "Model Cards for Model Reporting", FAT* 2019.
"""

from collections.abc import Mapping
import dataclasses
import json
import os
import pathlib
from typing import Any

from tff_fedemb import errors
from tff_fedemb.accounting import report as report_lib
from tff_fedemb.evaluation import gallery_thresholds
from tff_fedemb.evaluation import verification

# Place in a SavedModel: loaders ignore such files, and a copy of the directory
# has them too.
PATH = "assets.extra/model_card.json"
FALSE_ACCEPT_RATES = (1e-2, 1e-3, 1e-4)

_VERSION = 1
# Preprocessing of examples by name: that of images, and that of all others.
MIDDLE_CROP = "middle_crop"
AS_GIVEN = "as_given"
_PREPROCESSING = {
  MIDDLE_CROP: (
    "turned as the EXIF orientation says, laid on white where transparent, in"
    " grey or RGB, the largest piece of the wanted proportions cut from the"
    " middle, resized to the image shape (bilinear, antialiased), values 0 to"
    " 255 as float32"
  ),
  AS_GIVEN: "none: float32 as it was in training",
}
_OF_TRAINING_USERS = (
  "These figures come from images of users who trained, which were held out of"
  " training, and have no noise: they are outside the guarantee."
)
_OF_OTHERS = (
  "These figures come from images that are not of the users who trained; they"
  " have no noise, and protect nobody whom these images show."
)
_NOT_KNOWN = (
  "Whether these images are of users who trained is not known here: take these"
  " figures, which have no noise, to be outside the guarantee."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelCard:
  """Card that goes along with a model.

  Attributes:
    image_shape: Height, width and channels of an image, or the shape of an
      example of another kind.
    embedding_dim: Numbers of an embedding.
    verification: Thresholds by false accept rate and their origin, as returned
      by `describe_verification`; `None` if nothing was measured.
    privacy: Report of the run, or of the tuning that chose it, JSON values by
      name, as returned by `describe_privacy`; `None` if nothing is known.
    training: Settings of the training, JSON values by name.
    preprocessing: Preprocessing of examples, `MIDDLE_CROP` or `AS_GIVEN`.
    conversion: Format of a converted file and its difference from the model,
      JSON values by name; `None` for the model itself.

  References:
    Mitchell et al., "Model Cards for Model Reporting", FAT* 2019.
  """

  image_shape: tuple[int, ...]
  embedding_dim: int
  verification: Mapping[str, Any] | None = None
  privacy: Mapping[str, Any] | None = None
  training: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  preprocessing: str = MIDDLE_CROP
  conversion: Mapping[str, Any] | None = None

  def to_json(self) -> dict[str, Any]:
    """Returns the card as JSON values by name."""
    return {
      "model_card_version": _VERSION,
      **dataclasses.asdict(self),
      "preprocessing": {
        "name": self.preprocessing,
        "in_words": _PREPROCESSING[self.preprocessing],
      },
    }

  @classmethod
  def from_json(cls, values: Mapping[str, Any]) -> "ModelCard":
    """Inverse of `to_json`.

    Args:
      values: JSON values by name.

    Returns:
      The card.

    Raises:
      DataError: If they are not those of a card, or if this version does not
        know the preprocessing.
    """
    try:
      found = {x.name: values[x.name] for x in dataclasses.fields(cls)}
      found["image_shape"] = tuple(found["image_shape"])
      found["preprocessing"] = found["preprocessing"]["name"]
      card = cls(**found)
    except (KeyError, TypeError) as error:
      raise errors.DataError(
        f"a model card must have what it is made of, found {error!r}."
      ) from error
    if card.preprocessing not in _PREPROCESSING:
      raise errors.DataError(
        f"a model card must have preprocessing {MIDDLE_CROP!r}, found"
        f" {card.preprocessing!r}, of another version."
      )
    return card

  def threshold(self, false_accept_rate: float) -> Mapping[str, Any]:
    """Returns the threshold at a false accept rate and what belongs to it.

    Args:
      false_accept_rate: A rate of the card, in (0, 1).

    Returns:
      "threshold", "recall" and more, as `describe_verification` has them in
      "at_far".

    Raises:
      FieldError: If the card has no threshold at this rate.
    """
    measured = self.verification or {}
    known = measured.get("at_far", {})
    key = verification.format_false_accept_rate(false_accept_rate)
    if key in known:
      return known[key]
    found = key
    left_out = measured.get("left_out", {})
    if key in left_out:
      found = f"{key} ({left_out[key]})"
    rates = ", ".join(known) or "none"
    raise errors.FieldError(
      "far", f"be a rate of which the model has a threshold: {rates}", found
    )

  def gallery_threshold(
    self,
    false_positive_rate: float,
    num_classes: int,
    images_of_class: float,
    *,
    certainty: float | None = None,
  ) -> gallery_thresholds.Promise:
    """Returns the threshold for a gallery, and what it promises.

    Args:
      false_positive_rate: Share of strangers' images to accept, in (0, 1).
      num_classes: Number of classes of the gallery.
      images_of_class: Mean number of images of a class in the gallery.
      certainty: See `gallery_thresholds.find`.

    Returns:
      Threshold of the cosine similarity, with the false positive rate that it
      promises for galleries of this size.

    Raises:
      FieldError: If the card has no thresholds for galleries, or none for such
        a rate and gallery.
    """
    curve = (self.verification or {}).get("galleries")
    if not curve:
      raise errors.FieldError(
        "fpir",
        "be given for a model whose card has thresholds for galleries",
        "one without",
        "binaries.evaluate finds some on a folder of images.",
      )
    return gallery_thresholds.find(
      curve,
      false_positive_rate,
      num_classes,
      images_of_class,
      certainty=certainty,
    )


def describe_verification(
  result: verification.VerificationResult,
  *,
  source: str,
  on_training_users: bool | None,
  galleries: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
  """Describes thresholds for a card.

  A rate is left out if less than one false accept is expected at it: the
  threshold would only be above all the pairs that happen to be there.

  Privacy:
    Thresholds are computed without noise, from held-out images; the values say
    whose images those are.

  Args:
    result: Result at `FALSE_ACCEPT_RATES`.
    source: The images that were compared, in words.
    on_training_users: Whether some images are of users who trained; `None` if
      that is unknown.
    galleries: Thresholds for galleries of the same images, as returned by
      `gallery_thresholds.measure`.

  Returns:
    JSON values by name; "at_far" and "left_out" are by false accept rate.
  """
  note = {True: _OF_TRAINING_USERS, False: _OF_OTHERS, None: _NOT_KNOWN}
  known, left_out = _describe_rates(result)
  return {
    "source": source,
    "images_of_training_users": on_training_users,
    "privacy": note[on_training_users],
    "meaning": (
      "two images are taken for one class if the cosine similarity of their"
      " embeddings is at least the threshold; of pairs of two classes that is"
      " the case for a share of the false accept rate, of pairs of one class"
      " for a share of recall"
    ),
    "confidence": result.confidence,
    "num_images": result.num_images,
    "num_classes": result.num_classes,
    "num_positive_pairs": result.num_positive_pairs,
    "num_negative_pairs": result.num_negative_pairs,
    "at_far": known,
    "left_out": left_out,
    "galleries": galleries,
  }


def _describe_rates(
  result: verification.VerificationResult,
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
  """Returns thresholds by false accept rate, and why rates are left out.

  Args:
    result: Result of the verification.

  Returns:
    Two dictionaries by the formatted rate: the values of rates with at least
    one expected false accept (with a warning below ten), and the reasons for
    leaving out the others.
  """
  known = {}
  left_out = {}
  for rate, threshold in result.threshold_at_far.items():
    key = verification.format_false_accept_rate(rate)
    expected = rate * result.num_negative_pairs
    few = (
      f"{result.num_negative_pairs:,} pairs of two classes are"
      f" {expected:.2g} expected false accepts, and 10 are needed"
    )
    if expected < 1:
      left_out[key] = few
      continue
    if threshold > 1:
      left_out[key] = (
        "more pairs of two classes than that have the same embedding: no"
        " threshold keeps to the rate"
      )
      continue
    known[key] = {
      "threshold": threshold,
      "threshold_interval": list(result.threshold_interval_at_far[rate]),
      "recall": result.recall_at_far[rate],
      "recall_class_interval": list(result.recall_class_interval_at_far[rate]),
      "warning": few if expected < 10 else None,
    }
  return known, left_out


def describe_privacy(report: report_lib.PrivacyReport) -> dict[str, Any]:
  """Describes the guarantee for a card: the report of the run.

  Privacy:
    The report's finding about the trace of who took part is left out: the
    guarantee does not cover it, and a model is given away.

  Args:
    report: The report.

  Returns:
    JSON values by name, as `PrivacyReport.to_json` returns them, without
    `participation_checked`.
  """
  values = report.to_json()
  del values["participation_checked"]
  return values


def write(card: ModelCard, path: str | os.PathLike[str]) -> None:
  """Writes a card to a file, in a directory that is made if need be.

  Args:
    card: The card.
    path: JSON file to write; the parent of its directory has to exist.
  """
  path = pathlib.Path(path)
  path.parent.mkdir(exist_ok=True)
  text = json.dumps(card.to_json(), indent=2, allow_nan=False)
  path.write_text(text + "\n", encoding="utf-8")


def read(path: str | os.PathLike[str]) -> ModelCard | None:
  """Reads a card.

  Args:
    path: Its file.

  Returns:
    The card; `None` if there is no file, as with models of earlier versions.

  Raises:
    DataError: If the file is damaged; names the file.
  """
  path = pathlib.Path(path)
  try:
    values = json.loads(path.read_text(encoding="utf-8"))
    return ModelCard.from_json(values)
  except (FileNotFoundError, NotADirectoryError):
    return None
  except (OSError, ValueError) as error:
    raise errors.DataError(f"{path} must be a model card: {error}") from error
