"""An aggregator of one's own, registered as CONTRIBUTING.md says."""

import dataclasses
import json

from tests.binaries import programs
from tff_fedemb.aggregators import mechanism
from tff_fedemb.aggregators import registry
from tff_fedemb.aggregators import secret_noise


@dataclasses.dataclass(frozen=True, kw_only=True)
class _HalfConfig(mechanism.MechanismConfig):
  """The Gaussian mechanism, under another name."""

  def create(self, schedule=mechanism.ONE_ROUND):
    del schedule
    query = secret_noise.SecretGaussianSumQuery(
      self.clip_norm, self.clip_norm * self.noise_multiplier
    )
    return self.measure(mechanism.build_mean(query, self.clients_per_round))


def test_it_is_accounted_for_and_reported(data_dir, tmp_path, monkeypatch):
  monkeypatch.setitem(registry.AGGREGATORS, "half", _HalfConfig)
  run_dir, report = tmp_path / "run", tmp_path / "report.html"
  train = (
    *("run_federated", "--task=emnist", f"--data_dir={data_dir}"),
    *("--aggregator=half", "--noise_multiplier=2", "--rounds=2"),
    *("--participation=poisson", "--clients_per_round=3", "--delta=0.01"),
    *("--backbone=convnet", "--batch_size=64", "--max_evaluation_images=100"),
    f"--run_dir={run_dir}",
  )
  for arguments in (
    train,
    ("account", "epsilon", f"--run_dir={run_dir}"),
    ("report", f"--run_dirs={run_dir}", f"--output={report}"),
  ):
    ended = programs.call(*arguments)
    assert (ended.status, ended.errors) == (0, "")
  summary = json.loads((run_dir / "summary.json").read_text())
  epsilon = f"{summary['privacy']['epsilon']:.4g}"
  assert 0 < float(epsilon) < 10
  assert f"ε = {epsilon}" in report.read_text(encoding="utf-8")
