"""The model that a run hands over: the last, the best, or an average."""

from __future__ import annotations

from typing import Any

from tff_fedemb import errors
from tff_fedemb.records import kept_model
from tff_fedemb.rounds import loop as loop_lib
from tff_fedemb.spec import experiment as experiment_lib
from tff_fedemb.training import models


def keeps_best(experiment: experiment_lib.Experiment) -> bool:
  """Whether a run hands over the best of its evaluated models, not the last.

  By default it does if the choice is free: validation images are not those for
  test, and are of users who do not train, unless the run adds no noise anyway.

  Args:
    experiment: The run, its task at hand.

  Returns:
    False also if an average over rounds is handed over.

  Raises:
    errors.FieldError: If that was asked for and would be chosen by images of
      users who are protected.
  """
  if experiment.spec.export_average is not None:
    return False
  asked = experiment.spec.keep
  has_noise = bool(experiment.mechanism.config.noise_multiplier)
  is_free = experiment.task.validates_on_others or not has_noise
  if asked is None:
    return is_free and not experiment.task.validates_on_test
  if asked == kept_model.BEST and not is_free:
    raise errors.FieldError(
      "keep",
      f"be {kept_model.LAST} where images for validation may be of users who"
      " train, whom a choice by them does not protect",
      asked,
      "selection_users=N leaves N users out of training for it.",
    )
  return asked == kept_model.BEST


def hand_over(
  evaluator: models.Evaluator, last: Any, loop: loop_lib.TrainingLoop
) -> dict[str, Any]:
  """Gives an evaluator the model that a run hands over.

  If the best model is another than the last, the last is evaluated first. The
  evaluator's backbone has the weights to hand over afterwards.

  Args:
    evaluator: The evaluator.
    last: The model after the last round, which the loop may no longer have.
    loop: The loop, after its rounds.

  Returns:
    JSON values by name: the model's `round`, `of_rounds`, `by` (how it was
    chosen), and `start_share` in its weights. The best model also has
    `mean_recall_on_validation` and, if the last model is another, the recalls
    of that one as `last`, by split.

  Raises:
    errors.DivergedError: If the last model is not the best, and its embeddings
      of validation images are not finite.
  """
  config = loop.config
  evaluator.set_weights(last)
  best = None if loop.kept is None else loop.kept.best
  why = "being the last"
  if config.export_average is not None:
    why = f"averaging over rounds, {config.export_average:g} of the past each"
  chosen: dict[str, Any] = {
    "round": config.rounds,
    "of_rounds": config.rounds,
    "by": why,
    "start_share": config.export_start_share,
  }
  if best is None:
    return chosen
  chosen["round"] = best.round
  chosen["by"] = (
    "mean recall on validation images, among evaluated rounds and start"
  )
  chosen["mean_recall_on_validation"] = best.recall
  if best.round != config.rounds:
    recalls = chosen["last"] = {}
    for split, result in evaluator.evaluate_all().items():
      recalls[split] = result.to_json()["recall_at_far"]
    # The weights at the start may lack a head.
    mixed = loop.handed_over(best.weights) if best.round else best.weights
    evaluator.set_weights(mixed)
  return chosen
