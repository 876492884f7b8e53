"""Cards of models: their thresholds and their guarantee.

A model that leaves its run takes along from which similarity on two images
should be taken for one class, how images are made ready for it, and what may be
claimed for the users who trained it. In the spirit of Mitchell et al., "Model
Cards for Model Reporting", FAT* 2019.
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

# In a SavedModel; what loads one leaves such files alone, and whoever copies
# the directory copies them.
PATH = "assets.extra/model_card.json"
FALSE_ACCEPT_RATES = (1e-2, 1e-3, 1e-4)

_VERSION = 1
# How examples are made ready, by name: images in one way, others not at all.
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
      example that is none.
    embedding_dim: Numbers of an embedding.
    verification: Thresholds by false accept rate and where they come from, as
      `describe_verification` makes it; `None` if nothing was measured.
    privacy: The report of the run, or of the tuning that has chosen it, as JSON
      values by name, without what it says of the trace; `None` if nothing is
      known.
    training: Settings that the model was trained with, JSON values by name.
    preprocessing: Preprocessing of examples, `MIDDLE_CROP` or `AS_GIVEN`.
    conversion: Format of a converted file and its difference from the model,
      JSON values by name.
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

    Raises:
      DataError: If it is no card, or of images made ready otherwise.
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
    """Returns the facts of a false accept rate: "threshold", "recall", ...

    Raises:
      FieldError: If there is none of this rate.
    """
    known = (self.verification or {}).get("at_far", {})
    key = verification.format_false_accept_rate(false_accept_rate)
    if key not in known:
      left_out = (self.verification or {}).get("left_out", {})
      why = f" ({left_out[key]})" if key in left_out else ""
      raise errors.FieldError(
        "far",
        "be a rate of which the model has a threshold:"
        f" {', '.join(known) or 'none'}",
        f"{key}{why}",
      )
    return known[key]

  def gallery_threshold(
    self,
    false_positive_rate: float,
    num_classes: int,
    images_of_class: float,
    *,
    certainty: float | None = None,
  ) -> gallery_thresholds.Promise:
    """Returns the promise for strangers to a gallery.

    Args:
      false_positive_rate: Share of strangers' images to accept.
      num_classes: Classes of the gallery.
      images_of_class: Mean number of images of a class in the gallery.
      certainty: See `gallery_thresholds.find`.

    Raises:
      FieldError: If nothing is known of this rate and gallery.
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
  """Describes thresholds for a card, as JSON values by name.

  A rate is left out for which less than one false accept was to be expected:
  its threshold would be that above all pairs there happened to be.

  Privacy:
    Thresholds are computed without noise, from held-out images; the values say
    of whom those are.

  Args:
    result: Result at `FALSE_ACCEPT_RATES`.
    source: Images that were compared, in words.
    on_training_users: Whether some images are of users who trained; `None` if
      nobody knows.
    galleries: Thresholds for galleries of the same images, as of
      `gallery_thresholds.measure`.
  """
  note = {True: _OF_TRAINING_USERS, False: _OF_OTHERS, None: _NOT_KNOWN}
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
    known[key] = {
      "threshold": threshold,
      "threshold_interval": list(result.threshold_interval_at_far[rate]),
      "recall": result.recall_at_far[rate],
      "recall_class_interval": list(result.recall_class_interval_at_far[rate]),
      "warning": few if expected < 10 else None,
    }
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


def describe_privacy(report: report_lib.PrivacyReport) -> dict[str, Any]:
  """Describes the guarantee for a card: the report, as the run has it.

  Privacy:
    The report's words on the trace of who took part are left out. They are not
    covered by the guarantee, and a model is given away.
  """
  values = report.to_json()
  del values["participation_checked"]
  return values


def write(card: ModelCard, path: str | os.PathLike[str]) -> None:
  """Writes a card to a file."""
  path = pathlib.Path(path)
  path.parent.mkdir(exist_ok=True)
  text = json.dumps(card.to_json(), indent=2, allow_nan=False)
  path.write_text(text + "\n", encoding="utf-8")


def read(path: str | os.PathLike[str]) -> ModelCard | None:
  """Reads a card; `None` if there is none: earlier versions wrote none.

  Raises:
    DataError: If it is damaged; it names the file.
  """
  path = pathlib.Path(path)
  if not path.exists():
    return None
  try:
    return ModelCard.from_json(json.loads(path.read_text(encoding="utf-8")))
  except (OSError, ValueError) as error:
    raise errors.DataError(f"{path} must be a model card: {error}") from error
