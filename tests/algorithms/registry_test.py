"""Tests of algorithms as configurations: JSON there and back, and mistakes."""

import pytest

from tff_fedemb import errors
from tff_fedemb.algorithms import algorithm
from tff_fedemb.algorithms import contrastive
from tff_fedemb.algorithms import fedemb
from tff_fedemb.algorithms import local_training
from tff_fedemb.algorithms import registry
from tff_fedemb.models import heads

_LOCAL = local_training.LocalTraining(learning_rate=0.1, augmentation="affine")


@pytest.mark.parametrize("name", registry.ALGORITHMS)
def test_json_there_and_back(name):
  algorithm_class = registry.ALGORITHMS[name]
  made = algorithm_class(head=heads.CosineHead(scale=3.0), local=_LOCAL)
  assert isinstance(made, algorithm.Algorithm)
  values = made.to_json()
  assert values["head"] == {
    "kind": "cosine",
    "scale": 3.0,
    "learned_scale": False,
  }
  assert values["local"]["learning_rate"] == 0.1
  assert algorithm_class.from_json(values) == made


def test_what_makes_no_views_is_refused():
  with pytest.raises(errors.FieldError, match="augmentation must make"):
    contrastive.Contrastive()


def test_own_head_is_found_by_its_module():
  made = fedemb.FedEmb(head=contrastive.OtherViews(temperature=2.0))
  values = made.to_json()
  assert values["head"]["kind"] == (
    "tff_fedemb.algorithms.contrastive:OtherViews"
  )
  assert fedemb.FedEmb.from_json(values) == made


@pytest.mark.parametrize(
  ("values", "message"),
  [
    ({"heads": {}}, "heads must be a field of FedEmb, found none"),
    ({"head": {"kind": "round"}}, "head must be one of"),
    ({"head": {"kind": "cosine", "scale": 0}}, "scale must be positive"),
    ({"head": 3}, "head must be a Head, found 3"),
    ({"local": {"head_imprint_steps": 1}}, "head_imprint_steps must be 0"),
  ],
)
def test_what_json_cannot_say(values, message):
  with pytest.raises(errors.FieldError, match=message):
    fedemb.FedEmb.from_json(values)
