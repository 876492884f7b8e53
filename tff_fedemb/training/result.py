"""The result of a run, read from its directory."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib

from etils import epy

from tff_fedemb import errors
from tff_fedemb.records import run_directory
from tff_fedemb.report import finished_run

with epy.lazy_imports():
  import tensorflow as tf

  from tff_fedemb.evaluation import verification
  from tff_fedemb.models import pretrained
  from tff_fedemb.records import model_card
  from tff_fedemb.report import page


@dataclasses.dataclass(frozen=True)
class Result(finished_run.FinishedRun):
  """A finished run, as training returns it.

  Files are read when a property needs them, and only once.

  Attributes:
    spec: Spec of the run.
    run_dir: Its directory.

  Examples:
    >>> result = fe.train(spec, run_dir="runs/first")
    >>> isinstance(result, fe.Result)
    True
    >>> result.report("first.html")
  """

  def recall_at_far(self, false_accept_rate: float = 1e-3) -> float:
    """Recall on the test images, at a false accept rate.

    Args:
      false_accept_rate: A rate in (0, 1) that the run was evaluated at.

    Returns:
      The share of pairs of one class that are accepted, in [0, 1].

    Raises:
      errors.FieldError: If the run was not evaluated at this rate.
    """
    recalls = self.summary["recall_at_far"]
    name = verification.format_false_accept_rate(false_accept_rate)
    if name not in recalls:
      raise errors.FieldError(
        "false_accept_rate",
        f"be one of {', '.join(recalls)}",
        false_accept_rate,
      )
    return recalls[name]

  @functools.cached_property
  def backbone(self) -> tf.keras.Model:
    """The Keras model from images to embeddings.

    It takes float images `[batch, height, width, channels]` in [0, 255] and
    returns embeddings `[batch, dim]`, which are not normalised.

    It is built on first use, with the released weights.

    Raises:
      errors.FieldError: If the model or its card is not there any more, or the
        weights do not fit, as after a change of the code.
    """
    path = pathlib.Path(self.run_dir) / run_directory.SAVED_MODEL
    card = model_card.read(path / model_card.PATH)
    if card is None:
      raise errors.FieldError(
        "run_dir",
        f"hold {run_directory.SAVED_MODEL} with its {model_card.PATH}",
        f"{self.run_dir} without",
      )
    backbone = self.spec.algorithm.backbone.create(
      card.image_shape, default=card.training["backbone"]
    )
    pretrained.load_pretrained(backbone, path)
    return backbone

  def report(self, path: str | os.PathLike[str]) -> str:
    """Writes a page about the run, for a browser.

    Args:
      path: Path of the page, which is replaced if it exists.

    Returns:
      The path.

    Raises:
      errors.DataError: If the run is not finished.
    """
    path = os.fspath(path)
    page.write_for_run(self.run_dir, output=path)
    return path

  def __str__(self) -> str:
    recalls = []
    for rate, recall in self.summary["recall_at_far"].items():
      recalls.append(f"{recall:.4f} at FAR {rate}")
    cost = f"epsilon {self.epsilon:.4g} at delta {self.delta:g}"
    return f"recall {'; '.join(recalls)}\n{cost}\n{self.run_dir}"
