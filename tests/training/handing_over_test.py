"""Tests of the model that a run hands over."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from tests.training import tiny_specs
import tff_fedemb as fe
from tff_fedemb.spec import experiment
from tff_fedemb.training import handing_over
from tff_fedemb.training import models


def _create_spoiling_spec(**fields):
  """Steps along one direction alone, in which four classes do not differ."""
  rng = np.random.default_rng(1)
  alike = np.ones([24, 6]) + 0.01 * rng.normal(size=[24, 6])
  test = 8.0 * np.eye(6)[tiny_specs.LABELS] + rng.normal(size=[24, 6])
  task = fe.ArrayTask(
    alike.astype(np.float32),
    tiny_specs.LABELS,
    tiny_specs.USERS,
    test=(test.astype(np.float32), tiny_specs.LABELS),
    validation=(test.astype(np.float32), tiny_specs.LABELS),
  )
  return dataclasses.replace(
    tiny_specs.create(),
    task=task,
    server_optimizer=fe.SgdMomentum(learning_rate=1e4),
    rounds=3,
    evaluate_every=1,
    sampling_seed=1,
    **fields,
  )


@pytest.mark.slow
def test_hands_over_the_start_where_training_spoils_it(tmp_path, capfd):
  best = fe.train(_create_spoiling_spec(), run_dir=tmp_path / "best")
  spec = _create_spoiling_spec(keep="last")
  last = fe.train(spec, run_dir=tmp_path / "last")
  kept = best.summary["kept"]
  assert kept["round"] == 0
  # The same rounds ran, and what they led to is told, not handed over.
  assert kept["last"]["test"] == last.summary["recall_at_far"]
  assert (
    best.summary["recall_at_far"] == (best.summary["recall_at_far_untrained"])
  )
  assert best.recall_at_far(0.1) > last.recall_at_far(0.1)
  card = tmp_path / "best/release/saved_model/assets.extra/model_card.json"
  assert json.loads(card.read_text())["training"]["kept"]["round"] == 0
  said = capfd.readouterr()
  assert "Kept: the start, best" in said.out + said.err


def test_protected_users_choose_nothing(tmp_path):
  noise = fe.Gaussian(noise_multiplier=1.0, clip_norm=0.3)
  spec = dataclasses.replace(tiny_specs.create(), mechanism=noise, keep="best")
  with pytest.raises(fe.FieldError, match="keep must be last where images"):
    fe.train(spec, run_dir=tmp_path / "run")
  assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
  ("keep", "validates", "keeps_best"),
  [
    (None, False, False),
    (None, True, True),
    ("best", False, True),
    ("last", True, False),
  ],
)
def test_images_for_test_choose_nothing_unless_asked_to(
  keep, validates, keeps_best
):
  spec = dataclasses.replace(tiny_specs.create(), keep=keep)
  if validates:
    task = dataclasses.replace(spec.task, validation=spec.task.test)
    spec = dataclasses.replace(spec, task=task)
  task = spec.task.create()
  assert task.validates_on_test == (not validates)
  found = handing_over.keeps_best(experiment.resolve(spec, task))
  assert found == keeps_best


def _train_recorded(spec, run_dir, monkeypatch):
  """Returns a result, and the models that were evaluated, start and rounds."""
  evaluated, validate = [], models.Evaluator.validate

  def record(evaluator, weights):
    recalls = validate(evaluator, weights)
    evaluated.append(evaluator.backbone.get_weights())
    return recalls

  every_round = dataclasses.replace(spec, evaluate_every=1)
  with monkeypatch.context() as patched:
    patched.setattr(models.Evaluator, "validate", record)
    result = fe.train(every_round, run_dir=run_dir)
  return result, evaluated


def _check_close(found, expected):
  for one, other in zip(found, expected, strict=True):
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_hands_over_the_average_of_all_rounds(tmp_path, monkeypatch):
  """As it follows from the start and the models of another run's rounds."""
  spec = dataclasses.replace(
    tiny_specs.create(), sampling_seed=1, rounds=3, keep="best"
  )
  _, evaluated = _train_recorded(spec, tmp_path / "rounds", monkeypatch)
  expected, *models_of_rounds = evaluated
  assert len(models_of_rounds) == 3
  for number, last in enumerate(models_of_rounds, 1):
    share = min(0.25, (1 + number) / (10 + number))
    expected = [
      share * before + (1 - share) * new
      for before, new in zip(expected, last, strict=True)
    ]
  spec = dataclasses.replace(spec, keep="last", export_average=0.25)
  result = fe.train(spec, run_dir=tmp_path / "average")
  _check_close(result.backbone.get_weights(), expected)
  assert result.summary["kept"]["by"].startswith("averaging over rounds, 0.25")


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["best", "last"])
def test_hands_over_a_model_between_start_and_round(
  keep, tmp_path, monkeypatch
):
  """What is evaluated and handed over has a quarter of the start's weights."""
  spec = dataclasses.replace(
    tiny_specs.create(), sampling_seed=1, rounds=2, keep=keep
  )
  _, (start, *rounds) = _train_recorded(
    dataclasses.replace(spec, keep="best"), tmp_path / "rounds", monkeypatch
  )
  expected = [start]
  for weights in rounds:
    mixed = []
    for one, other in zip(start, weights, strict=True):
      mixed.append(0.25 * one + 0.75 * other)
    expected.append(mixed)
  spec = dataclasses.replace(spec, export_start_share=0.25)
  result, evaluated = _train_recorded(spec, tmp_path / "share", monkeypatch)
  # The start is a candidate for the best model alone.
  expected_evaluated = expected if keep == "best" else expected[1:]
  for found, wanted in zip(evaluated, expected_evaluated, strict=True):
    _check_close(found, wanted)
  kept = result.summary["kept"]
  assert kept["start_share"] == 0.25
  _check_close(result.backbone.get_weights(), expected[kept["round"]])


@pytest.mark.slow
def test_an_interrupted_run_still_hands_over_half_of_its_start(
  tmp_path, monkeypatch
):
  spec = tiny_specs.create()
  tf.keras.utils.set_random_seed(7)
  public = spec.algorithm.backbone.create((6,), default="dense")
  public.save_weights(tmp_path / "public.h5")
  spec = dataclasses.replace(
    spec,
    pretrained_backbone=str(tmp_path / "public.h5"),
    export_start_share=0.5,
    sampling_seed=1,
    rounds=2,
  )
  whole = fe.train(spec, run_dir=tmp_path / "whole")
  sample = fe.Poisson.sample

  def interrupt(claim, round_num, *, key):
    if round_num:
      raise KeyboardInterrupt
    return sample(claim, round_num, key=key)

  with monkeypatch.context() as patched:
    patched.setattr(fe.Poisson, "sample", interrupt)
    with pytest.raises(KeyboardInterrupt):
      fe.train(spec, run_dir=tmp_path / "run")
  resumed = fe.train(spec, run_dir=tmp_path / "run")
  found = resumed.backbone.get_weights()
  _check_close(found, whole.backbone.get_weights())
  # Not the start alone.
  assert not np.allclose(found[0], public.get_weights()[0])
