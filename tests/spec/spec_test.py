"""Tests of what a run is: its JSON, its settings, and what it refuses."""

import dataclasses
import json

import numpy as np
import pytest

from tasks import registry
from tests.spec import specs
from tff_fedemb import errors
from tff_fedemb.algorithms import fedavg
from tff_fedemb.algorithms import server_optimizers
from tff_fedemb.mechanisms import gaussian
from tff_fedemb.mechanisms import strategy
from tff_fedemb.mechanisms import tree
from tff_fedemb.models import backbones
from tff_fedemb.models import heads
from tff_fedemb.participation import check_ins
from tff_fedemb.spec import array_task
from tff_fedemb.spec import deployment
from tff_fedemb.spec import spec as spec_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnMechanism(gaussian.GaussianConfig):
  """A mechanism that no registry has.

  Attributes:
    strength: Strength of nothing.
  """

  strength: int = 1


_OWN = "tests.spec.spec_test:OwnMechanism"
_DEPLOYED = deployment.DeploymentConfig(deployment="ideal")
_CHECK_INS = check_ins.CheckIns(100, 10)


def _create_array_task(offset=0):
  images = np.full([4, 2, 2, 1], offset, np.uint8)
  labels = np.array([0, 0, 1, 1])
  return array_task.ArrayTask(images, labels, labels, test=(images, labels))


def _reread(spec, **options):
  values = json.loads(json.dumps(spec.to_json()))
  return spec_lib.RunSpec.from_json(values, **options)


def test_json_there_and_back():
  spec = spec_lib.RunSpec(
    task=registry.Handwriting(num_users=7),
    algorithm=fedavg.FedAvg(head=heads.CosineHead()),
    participation=specs.PARTICIPATION,
    mechanism=tree.TreeConfig(noise_multiplier=2.0, restart_every=3),
    evaluation=spec_lib.Evaluation(max_held_out_images=5),
    delta=1e-4,
    rounds=9,
  )
  values = spec.to_json()
  assert values["task"]["kind"] == "handwriting"
  assert values["algorithm"]["kind"] == "fedavg"
  assert values["algorithm"]["head"]["kind"] == "cosine"
  assert values["mechanism"]["kind"] == "tree"
  assert "seed" in values and "sampling_seed" not in values
  assert _reread(spec) == spec
  with pytest.raises(errors.FieldError, match="turns must be a field of Run"):
    spec_lib.RunSpec.from_json(values | {"turns": 3})
  with pytest.raises(errors.FieldError, match="task must be given"):
    spec_lib.RunSpec.from_json({})
  values["algorithm"]["kind"] = "none such"
  with pytest.raises(errors.FieldError, match="algorithm must be one of"):
    spec_lib.RunSpec.from_json(values)


def test_a_class_of_ones_own_goes_there_and_back():
  spec = specs.create(mechanism={"kind": _OWN, "strength": 3})
  assert spec.to_json()["mechanism"]["kind"] == _OWN
  again = _reread(spec)
  assert (type(again.mechanism), again.mechanism.strength) == (OwnMechanism, 3)
  assert spec.settings()["aggregator"] == _OWN


def test_arrays_are_recorded_as_shapes_and_a_digest(tmp_path):
  spec = specs.create(_create_array_task())
  values = spec.to_json()["task"]
  assert values["images"] == [4, 2, 2, 1]
  assert len(values["sha256"]) == 64
  assert values.keys() == {"kind", "name", "images", "sha256"}
  with pytest.raises(errors.FieldError, match="task must be given as arrays"):
    _reread(spec)
  assert _reread(spec, task=_create_array_task()) == spec
  assert _reread(spec, task=_create_array_task(1)) != spec
  specs.write(tmp_path, _create_array_task())
  recorded = spec_lib.read(tmp_path)
  assert recorded.to_json() == spec.to_json()
  with pytest.raises(errors.FieldError, match="task must be given as arrays"):
    recorded.task.create()


def test_a_run_is_read_from_its_directory(tmp_path):
  with pytest.raises(errors.FieldError, match="run_dir must hold a run"):
    spec_lib.read(tmp_path)
  specs.write(tmp_path, rounds=4)
  assert spec_lib.read(tmp_path) == specs.create(rounds=4)
  values = json.loads((tmp_path / "run.json").read_text())
  for damaged in ({}, [], values | {"rounds": 0}, values | {"task": {}}):
    (tmp_path / "run.json").write_text(json.dumps(damaged))
    with pytest.raises(errors.FieldError, match=r"whole files .*run\.json"):
      spec_lib.read(tmp_path)


def test_paths_mean_the_same_everywhere_and_settings_may_hide_them(
  tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  spec = specs.create(
    registry.Emnist(data_dir="data/"), pretrained_backbone="public.h5"
  ).with_absolute_paths()
  assert spec.task.data_dir == str(tmp_path / "data")
  assert spec.task.cache_dir is None
  settings = spec.settings()
  assert settings["pretrained_backbone"] == str(tmp_path / "public.h5")
  found = spec.settings(with_paths=False)
  assert (found["data_dir"], found["pretrained_backbone"]) == (
    *("data", "public.h5"),
  )
  assert found.keys() == settings.keys()
  # By the names of flags, not of fields.
  assert (found["task"], found["aggregator"]) == ("emnist", "gaussian")
  assert found["extrapolated_cohort_factor"] == 64
  assert found["clients_per_round"] == 10


@pytest.mark.parametrize(
  ("given", "whole", "last"),
  [("my/own.yaml", "{}/my/own.yaml", "own.yaml"), *(3 * ("phones",),)],
)
def test_a_deployment_is_a_path_or_one_that_comes_along(
  tmp_path, monkeypatch, given, whole, last
):
  monkeypatch.chdir(tmp_path)
  spec = specs.create(
    participation=_CHECK_INS,
    deployment=deployment.DeploymentConfig(deployment=given),
  ).with_absolute_paths()
  assert spec.deployment.deployment == whole.format(tmp_path)
  assert spec.settings(with_paths=False)["deployment"] == last


@pytest.mark.parametrize(
  ("fields", "workload"),
  [
    ({}, strategy.Workload(0.5, "rmse")),
    ({"noise_objective": "last"}, strategy.Workload(0.5, "last")),
    ({"noise_objective": "prefix_sums"}, strategy.Workload(0.0, "rmse")),
  ],
)
def test_noise_is_made_for_the_server_optimizer(fields, workload):
  server = server_optimizers.SgdMomentum(momentum=0.5)
  spec = specs.create(server_optimizer=server, **fields)
  assert spec.workload == workload


def test_what_may_vary_decides_no_result():
  varying = spec_lib.varying(specs.create())
  assert ("task", "cache_dir") in varying
  assert ("runtime", "ray_address") in varying
  assert ("extrapolation", "extrapolated_num_users") in varying
  for path in (
    *(("rounds",), ("seed",), ("task",), ("task", "data_dir")),
    *(("mechanism",), ("mechanism", "clip_norm"), ("participation",)),
  ):
    assert path not in varying


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    ({"participation": None}, "participation must be given"),
    (
      {"algorithm": "centralized"},
      "participation must not be given with algorithm centralized",
    ),
    (
      {
        "algorithm": "centralized",
        "participation": None,
        "deployment": _DEPLOYED,
      },
      "deployment must not be given with algorithm centralized",
    ),
    ({"deployment": _DEPLOYED}, "be check_ins with a deployment, .* fo"),
    ({"participation": _CHECK_INS}, "and with nothing else, found check_ins"),
    (
      {
        "participation": _CHECK_INS,
        "deployment": _DEPLOYED,
        "sampling_seed": 1,
      },
      "sampling_seed must not be given with a deployment",
    ),
    ({"rounds": 0}, "rounds must be"),
  ],
)
def test_what_does_not_belong_together_is_refused(fields, message):
  with pytest.raises(errors.FieldError, match=message):
    specs.create(**fields)


def test_statistics_that_stay_come_with_a_pretrained_backbone():
  algorithm = fedavg.FedAvg(backbone=backbones.BackboneConfig(norm="frozen"))
  with pytest.raises(errors.FieldError, match="norm must be group without a"):
    dataclasses.replace(specs.create(), algorithm=algorithm)
  dataclasses.replace(
    specs.create(), algorithm=algorithm, pretrained_backbone="imagenet.h5"
  )


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"task": None}, "task must be given"),
    ({"algorithm": {"kind": ["fedemb"]}}, "algorithm must be one of"),
    ({"participation": [1]}, "participation must be a "),
  ],
)
def test_a_damaged_file_is_told_of_and_a_bug_is_none(
  tmp_path, monkeypatch, change, message
):
  values = specs.create(mechanism={"kind": "gaussian"}).to_json() | change
  kept = {name: value for name, value in values.items() if value is not None}
  (tmp_path / "run.json").write_text(json.dumps(kept))
  with pytest.raises(
    errors.FieldError, match=f"whole files of a run.*{message}"
  ):
    spec_lib.read(tmp_path)
  specs.write(tmp_path, mechanism={"kind": "gaussian"})
  monkeypatch.setattr(
    gaussian.GaussianConfig, "__post_init__", lambda self: None + 1
  )
  with pytest.raises(TypeError, match="unsupported operand"):
    spec_lib.read(tmp_path)
