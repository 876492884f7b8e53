"""What a training run prints."""

from collections.abc import Mapping
import math
import os
from typing import Any

import tqdm

from tasks import task as task_lib
from tff_fedemb.evaluation import verification
from tff_fedemb.privacy import extrapolation as extrapolation_lib
from tff_fedemb.privacy import report as report_lib
from tff_fedemb.program import run_directory


def say(text: str) -> None:
  """Prints a line without breaking the progress bar."""
  tqdm.tqdm.write(text)


def tell(
  task: task_lib.Task,
  directory: run_directory.RunDirectory,
  report: Mapping[str, Any],
  trained: verification.VerificationResult,
  privacy: report_lib.PrivacyReport,
  extrapolation: extrapolation_lib.Extrapolation | None,
) -> None:
  """Prints the outcome.

  Args:
    task: What was trained on.
    directory: Of the run.
    report: What its summary.json holds.
    trained: Of the test images.
    privacy: What the rounds cost.
    extrapolation: Cost with a larger population, if there is noise.
  """
  rate = 1e-3
  before = "; ".join(
    f"{name} {report[key][verification.format_false_accept_rate(rate)]:.4f}"
    for name, key in (
      ("untrained", "recall_at_far_untrained"),
      ("pretrained", "recall_at_far_pretrained"),
    )
    if report.get(key)
  )
  low, high = trained.recall_class_interval_at_far[rate]
  say(
    f"Recall at FAR {rate:g} on {trained.num_classes}"
    f" {'unseen classes' if task.held_out_classes_are_new else 'classes'}"
    f" ({trained.num_images} images): {trained.recall_at_far[rate]:.4f}"
    f" ({trained.confidence:.0%} interval over classes {low:.4f} to"
    f" {high:.4f}); {before}."
  )
  if task.evaluation_on_training_users and privacy.epsilon < math.inf:
    say(
      "This recall is of images that may be of the users who trained: epsilon"
      " does not cover it."
    )
  for warning in trained.warnings:
    say(f"warning: {warning}")
  say(
    f"epsilon = {privacy.epsilon:.4g} at delta = {privacy.delta:g}"
    f" ({privacy.accountant}), {privacy.rounds} rounds."
  )
  say(
    f"{report['num_private_parameters']:,} parameters are trained on users'"
    f" data, {report['num_frozen_parameters']:,} are frozen."
  )
  say(privacy.statement)
  for warning in privacy.warnings:
    say(f"warning: {warning}")
  if extrapolation is not None:
    say(extrapolation.to_text())
  say(
    f"Written to {os.fspath(directory.path)}: summary.json, saved_model/,"
    " plots/overview.png, metrics.csv."
  )
