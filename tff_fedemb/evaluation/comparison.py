"""Warns if training has not clearly improved a model on held-out classes.

A random backbone already separates some classes, so recall alone does not tell
whether a model has learned.
"""

import dataclasses
import math

from tff_fedemb.evaluation import verification


def warn_if_no_better(
  trained: verification.VerificationResult,
  untrained: verification.VerificationResult,
) -> verification.VerificationResult:
  """Adds a warning to a result that is no better than before training.

  A model is better if at one of the false accept rates the interval of the
  difference of both recalls lies above 0. Its lower end is made from the class
  intervals of the two by the method of variance estimates recovery (Zou and
  Donner, "Construction of confidence limits about effect measures: A general
  approach", Statistics in Medicine 2008): the difference minus the square
  root of the sum of two squares: how far the trained recall may be lower, and
  how far the untrained recall may be higher. The method assumes that the two
  are independent. Here they are measured on the same classes, and most images
  that are easy for one model are easy for the other. The warning therefore
  comes rather too often.

  Args:
    trained: Result of the model that was trained, at one rate or more.
    untrained: Result for the same images and rates before training.

  Returns:
    The first result, with one more warning if it is no better. The warning
    quotes the rate at which the improvement is clearest.

  Raises:
    KeyError: If `untrained` lacks one of the rates.
  """
  lower = {}
  for rate, recall in trained.recall_at_far.items():
    recall_before = untrained.recall_at_far[rate]
    low, _ = trained.recall_class_interval_at_far[rate]
    _, high_before = untrained.recall_class_interval_at_far[rate]
    uncertainty = math.hypot(recall - low, high_before - recall_before)
    lower[rate] = recall - recall_before - uncertainty
  clearest = max(lower, key=lambda rate: lower[rate])
  if lower[clearest] > 0:
    return trained
  texts = []
  for result in (trained, untrained):
    low, high = result.recall_class_interval_at_far[clearest]
    texts.append(
      f"{result.recall_at_far[clearest]:.4f} ({result.confidence:.0%} interval"
      f" over classes {low:.4f} to {high:.4f})"
    )
  warning = (
    "training has not made the model clearly better at any false accept rate:"
    f" recall at FAR {verification.format_false_accept_rate(clearest)} is"
    f" {texts[0]}, untrained {texts[1]}"
  )
  return dataclasses.replace(trained, warnings=trained.warnings + (warning,))
