"""Tests of the program that audits: as a user calls it."""

import json
import math

import numpy as np
import pytest

from binaries import config_flags
from binaries import training_flags
from tasks.synthetic import emnist
from tests.binaries import programs
from tff_fedemb import errors
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import gaussian_accountant
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.algorithms import centralized
from tff_fedemb.participation import min_separation
from tff_fedemb.participation import poisson
from tff_fedemb.spec import spec as spec_lib
from tff_fedemb.spec import task as task_lib
from tff_fedemb.training import audit
from tff_fedemb.training import audit_settings

_FLAGFILE = "binaries/flagfiles/audit_emnist.flags"
_DELTA = "--delta=1e-5"


@pytest.fixture(name="files")
def _files(tmp_path):
  rng = np.random.default_rng(1)
  np.save(tmp_path / "in.npy", rng.normal(3.0, size=400))
  np.save(tmp_path / "out.npy", rng.normal(size=500))
  return (
    f"--in_scores={tmp_path / 'in.npy'}",
    f"--out_scores={tmp_path / 'out.npy'}",
  )


def test_scores_from_anywhere_are_bounded(files, tmp_path):
  output = tmp_path / "bound.json"
  ended = programs.call(
    "audit",
    "scores",
    *files,
    _DELTA,
    "--method=one_run",
    "--significance=0.01",
    f"--output_json={output}",
  )
  assert ended.status == 0, ended.errors
  values = json.loads(output.read_text(), parse_constant=pytest.fail)
  assert 1 < values["epsilon_lower"] < 16.7
  assert values["method"] == "one_run"
  assert values["significance"] == 0.01
  assert values["delta"] == 1e-5
  assert (values["num_in"], values["num_out"]) == (400, 500)
  assert "Assumed: " in ended.output


def test_mistakes_are_one_line(files, tmp_path):
  np.save(tmp_path / "nan.npy", np.array([1.0, math.nan]))
  (tmp_path / "text.npy").write_text("1, 2")
  for arguments, message in (
    ((files[0], _DELTA), "--out_scores must be given"),
    (
      (files[0], f"--out_scores={tmp_path / 'nan.npy'}", _DELTA),
      "--out_scores must be numbers, found NaN in 1 of 2",
    ),
    (
      (files[0], f"--out_scores={tmp_path / 'text.npy'}", _DELTA),
      "--out_scores must be a .npy file",
    ),
    (
      (*files, _DELTA, files[0].replace("in_scores", "output_json")),
      "--output_json must be another file than in_scores",
    ),
    (("--smoke",), "Unknown command line flag 'smoke'"),
  ):
    ended = programs.call("audit", "scores", *arguments)
    programs.check_refused(ended, message)
  assert len(np.load(tmp_path / "in.npy")) == 400


def test_the_flagfile_claims_an_epsilon_where_audits_have_power():
  with config_flags.Parser(["audit", f"--flagfile={_FLAGFILE}"], "") as parser:
    config = parser.add(audit_settings.AuditConfig)
    spec = training_flags.SpecFlags(parser)
    parser.parse()
    values = spec.create().settings()
    num_slots = 200 + config.create().num_canaries
  claim = min_separation.MinSeparation(num_slots, values["clients_per_round"])
  ledger = ledger_lib.Ledger(
    claim.for_rounds(values["rounds"]), delta=values["delta"]
  ).with_rounds(composition.Noise(values["noise_multiplier"]), values["rounds"])
  assert ledger.tightest_epsilon() == pytest.approx(5.98, abs=0.01)


_TINY = (
  "--task=emnist",
  "--embedding_dim=4",
  "--users_per_client=1",
  "--batch_size=64",
  _DELTA,
  "--rounds=4",
  "--evaluate_every=2",
  "--server_momentum=0",
  "--num_canaries=200",
)


def _call(data_dir, tmp_path, *arguments):
  return programs.call(
    "audit",
    "run",
    *_TINY,
    f"--data_dir={data_dir}",
    f"--output_dir={tmp_path / 'audit'}",
    *arguments,
  )


def _run(tmp_path, *arguments):
  data_dir = tmp_path / "data"
  emnist.write_emnist(data_dir, num_users=40, seed=2, examples_per_user=16)
  ended = _call(data_dir, tmp_path, *arguments)
  assert ended.status == 0, ended.errors
  assert (tmp_path / "audit" / "audit.png").stat().st_size > 10_000
  text = (tmp_path / "audit" / "audit.json").read_text()
  return ended, json.loads(text, parse_constant=pytest.fail)


@pytest.mark.slow
def test_training_without_noise_is_seen_through(tmp_path):
  ended, found = _run(
    tmp_path,
    "--noise_multiplier=0",
    "--participation=min_separation",
    "--clients_per_round=120",
  )
  assert found["epsilon_claimed"] == "inf"
  attack = found["attacks"]["canary_updates"]
  bounds = {
    (bound["statistic"], bound["method"]): bound["epsilon_lower"]
    for bound in attack["bounds"]
  }
  # 200 canaries can show this much, with the attacker's knowledge and without.
  assert bounds["known_schedule", "gdp_clopper_pearson"] > 2
  assert bounds["final_cosine", "one_run"] > 0.5
  assert attack["epsilon_lower"] == max(bounds.values())
  assert not attack["is_refuted"]
  assert "REFUTED" not in ended.output
  assert found["over_rounds"]["round"] == [2, 4]


@pytest.mark.slow
@pytest.mark.parametrize(
  "arguments",
  [
    ("--participation=poisson",),
    ("--participation=cyclic_poisson", "--aggregator=banded", "--num_bands=2"),
  ],
)
def test_sampled_claims_are_not_taken_for_gaussian_ones(tmp_path, arguments):
  _, found = _run(
    tmp_path,
    "--noise_multiplier=1",
    *arguments,
    "--clients_per_round=60",
    "--algorithm=fedavg",
    "--server_momentum=0.9",
    # The last models alone are attacked.
    "--evaluate_every=0",
  )
  assert set(found["attacks"]) == {"canary_updates"}
  attack = found["attacks"]["canary_updates"]
  assert 0 < found["epsilon_claimed"] < 40
  assert attack["epsilon_lower"] <= found["epsilon_claimed"]
  assert attack["epsilon_claimed"] == found["epsilon_claimed"]
  methods = {bound["method"] for bound in attack["bounds"]}
  assert methods == {"area", "clopper_pearson", "one_run"}


@pytest.mark.slow
def test_a_known_draw_is_claimed_as_a_run_claims_it(tmp_path):
  _, found = _run(
    tmp_path,
    "--noise_multiplier=1",
    "--participation=poisson",
    "--sampling_seed=1",
    "--clients_per_round=20",
    "--evaluate_every=0",
  )
  claim = poisson.Poisson(240, 20)
  drawn = [claim.draw_users(number, key=1) for number in range(4)]
  most = int(np.bincount(np.concatenate(drawn)).max())
  assert most < 4
  # Beside it is what the noise's arithmetic leaves.
  assert found["epsilon_claimed"] == pytest.approx(
    gaussian_accountant.epsilon_of(1.0, 1e-5, count=most), rel=1e-3
  )


def test_canaries_want_clients_of_their_own(data_dir, tmp_path):
  for argument, message in (
    ("--users_per_client=2", "--users_per_client must be 1"),
    ("--privacy_budget=b.json", "--privacy_budget must not be given for an"),
  ):
    programs.check_refused(_call(data_dir, tmp_path, argument), message)


def test_a_place_that_takes_no_figures_is_told_before_training(
  data_dir, tmp_path, monkeypatch
):
  monkeypatch.setattr(audit._Audit, "train", lambda self: pytest.fail())
  (tmp_path / "audit/audit.json").mkdir(parents=True)
  programs.check_refused(
    _call(data_dir, tmp_path), "--output_dir must be a file, found directory"
  )


def test_training_on_pooled_data_has_no_claim_to_audit(tmp_path):
  pooled = spec_lib.RunSpec(
    task=task_lib.RecordedTask({}), algorithm=centralized.Centralized()
  )
  config = audit_settings.AuditConfig(output_dir=str(tmp_path / "audit"))
  with pytest.raises(errors.FieldError, match="algorithm must have a mechan"):
    audit.audit(config, pooled)
  with pytest.raises(errors.FieldError, match="algorithm must have a mechan"):
    _ = pooled.workload
  assert not list(tmp_path.iterdir())


def test_an_audit_needs_a_directory():
  spec = spec_lib.RunSpec(
    task=task_lib.RecordedTask({}), participation=poisson.Poisson(None, 4)
  )
  with pytest.raises(errors.FieldError, match="output_dir must be given"):
    audit.audit(audit_settings.AuditConfig(), spec)
