"""Tests of a run with amplified banded noise, and of the report on it."""

import json
import os
import re
import shutil
import stat
import types

import pandas as pd
import pytest
import tensorflow_federated as tff

from tasks import registry
from tasks.synthetic import emnist as synthetic
from tests.binaries import closing
from tests.binaries import pages
from tests.binaries import programs
from tff_fedemb.accounting import composition
from tff_fedemb.records import chain as chain_lib
from tff_fedemb.records import model_card
from tff_fedemb.records import release
from tff_fedemb.records import sampling_key
from tff_fedemb.report import measured_runs
from tff_fedemb.report import page
from tff_fedemb.spec import spec as spec_lib
from tff_fedemb.training import plan as plan_lib

pytestmark = pytest.mark.slow

_NASTY = "<script>alert(1)</script>&\"'"


@pytest.fixture(name="data_dir", scope="module")
def _data_dir(tmp_path_factory):
  directory = tmp_path_factory.mktemp("data")
  synthetic.write_emnist(directory, num_users=8, seed=2, examples_per_user=160)
  return directory


def _flags(data_dir, run_dir):
  return (
    *("--task=emnist", f"--data_dir={data_dir}", f"--run_dir={run_dir}"),
    *("--clients_per_round=2", "--users_per_client=1", "--delta=0.01"),
    *("--participation=cyclic_poisson", "--aggregator=banded", "--num_bands=2"),
    *("--noise_multiplier=2", "--extrapolated_num_users=1000"),
    *("--backbone=convnet", "--rounds=3", "--evaluate_every=1", "--report"),
  )


@pytest.fixture(name="run_dir", scope="module")
def _run_dir(data_dir, tmp_path_factory):
  run_dir = tmp_path_factory.mktemp("runs") / "first"
  output = programs.succeed("run_federated", *_flags(data_dir, run_dir))
  assert f"Written to {run_dir / 'report.html'}" in output
  run_dir.with_suffix(".log").write_text(output)
  return run_dir


@pytest.fixture(name="summary", scope="module")
def _summary(run_dir):
  return json.loads((run_dir / "summary.json").read_text())


@pytest.fixture(name="whole", scope="module")
def _whole(run_dir):
  """The page of the run, parsed."""
  return pages.check((run_dir / "report.html").read_text(encoding="utf-8"))


@pytest.fixture(name="copy")
def _copy(run_dir, tmp_path):
  """Another directory with the same run, to be damaged."""
  return shutil.copytree(run_dir, tmp_path / "copy")


def _call(tmp_path, *run_dirs, arguments=()):
  output = tmp_path / "report.html"
  ended = programs.call(
    "report",
    f"--run_dirs={','.join(map(str, run_dirs))}",
    f"--output={output}",
    *arguments,
  )
  return ended, output


def _write(tmp_path, *run_dirs, arguments=()):
  ended, output = _call(tmp_path, *run_dirs, arguments=arguments)
  assert (ended.status, ended.errors) == (0, "")
  return pages.check(output.read_text(encoding="utf-8"))


def _change(path, **values):
  path.write_text(json.dumps(json.loads(path.read_text()) | values))


def _check_key(run_dir, output):
  """The key is where it belongs, and nowhere else."""
  path = run_dir / "checkpoints" / sampling_key.NAME
  assert stat.S_IMODE(path.stat().st_mode) == 0o600
  assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
  key = sampling_key.read(path.parent)
  encodings = [f"{key:032x}", f"{key:032X}", str(key)]
  encodings = [text.encode() for text in encodings]
  for order in ("little", "big"):
    encodings += [key.to_bytes(16, order), key.to_bytes(16, order)[:8]]
  files = [p for p in run_dir.rglob("*") if p.is_file() and p != path]
  for data in [p.read_bytes() for p in files] + [output.encode()]:
    assert not any(encoding in data for encoding in encodings)
  assert "sampling" not in (run_dir / "run.json").read_text()


def _check_card(run_dir, summary):
  """The model takes along what the summary says."""
  path = run_dir / "release/saved_model" / model_card.PATH
  card = model_card.read(path)
  assert card.image_shape == (28, 28, 1)
  privacy = dict(summary["privacy"])
  # The model is given away; who took part is not.
  del privacy["participation_checked"]
  assert card.privacy == privacy
  # The test images are of the writers who train.
  assert card.verification is None
  assert card.training["settings"]["noise_multiplier"] == 2.0
  assert os.fspath(run_dir.parent) not in path.read_text()


def test_a_plan_told_what_the_run_costs(run_dir, summary):
  plan = plan_lib.plan(spec_lib.read(run_dir), measure=False)
  assert plan.ledger == chain_lib.Chain(run_dir).ledger
  assert plan.epsilon == summary["privacy"]["epsilon"]
  size = plan.ledger.round_sum.num_parameters
  assert size == summary["num_private_parameters"]


def test_summary_plots_and_metrics_of_a_run(run_dir, summary):
  found, log = summary, run_dir.with_suffix(".log").read_text()
  # The report is told of after the end.
  closing.check(log.partition(f"Written to {run_dir}/report")[0], run_dir)
  privacy = found["privacy"]
  assert set(found["recall_at_far"]) == {"0.001", "0.01", "0.1"}
  assert privacy["epsilon"] > 0
  assert (found["rounds"], found["rounds_by_runs"]) == (3, {"1": 3})
  assert found["num_private_parameters"] == 97_408
  round_sum = composition.RoundSum(1.0, 2.0, 97_408)
  assert chain_lib.Chain(run_dir).ledger.round_sum == round_sum
  assert found["wall_seconds"] > found["wall_seconds_of_rounds"] > 0
  assert found["seconds_by_part"]["rounds"] >= found["wall_seconds_of_rounds"]
  of_rounds = found["seconds_of_rounds"]
  assert set(of_rounds) == {
    *("draw", "clients", "server", "record", "evaluation", "files")
  }
  assert min(of_rounds.values()) > 0
  assert sum(of_rounds.values()) == pytest.approx(
    found["seconds_by_part"]["rounds"], rel=0.2
  )
  assert found["peak_memory_bytes"] > 100e6
  # Scripts rely on these.
  assert set(found) == {
    *("recall_at_far", "recall_at_far_untrained", "seconds_by_part"),
    *("privacy_extrapolated", "rounds", "wall_seconds", "task", "split"),
    *("wall_seconds_of_rounds", "peak_memory_bytes", "algorithm", "data"),
    *("num_private_parameters", "num_users", "num_frozen_parameters"),
    *("user_meaning", "held_out_classes_are_new", "selection_users"),
    *("num_skipped_clients", "evaluation_on_training_users", "evaluation"),
    *("secure_sums", "seconds_of_rounds", "kept"),
    *("evaluation_untrained", "rounds_by_runs", "privacy", "chain"),
  }
  assert os.listdir(run_dir / "plots") == ["overview.png"]
  assert len(pd.read_csv(run_dir / "metrics.csv")) == 3
  _check_key(run_dir, log)
  assert privacy["amplification"].startswith("by sampling, from a secret key")
  _check_card(run_dir, found)
  account = programs.succeed("account", "epsilon", f"--run_dir={run_dir}")
  words = " ".join(account.split())
  assert f"epsilon = {privacy['epsilon']:.4f}" in words
  assert "the draw of all 3 rounds was replayed from checkpoints/samp" in words


def test_a_run_that_lost_its_key_does_not_go_on(data_dir, copy, monkeypatch):
  (copy / "summary.json").unlink()
  (copy / "checkpoints" / sampling_key.NAME).unlink()
  # Refused before the process is built, which may take a minute.
  monkeypatch.setattr(
    tff.simulation, "compose_dataset_computation_with_learning_process", None
  )
  refused = programs.call("run_federated", *_flags(data_dir, copy))
  programs.check_refused(refused, "--run_dir must hold the key")


def test_the_report_of_a_run_says_what_its_summary_says(
  run_dir, summary, whole
):
  parsed = whole
  privacy, test = summary["privacy"], summary["evaluation"]["test"]
  epsilon = f"ε = {privacy['epsilon']:.4g}"
  assert parsed.text.count(epsilon) >= 2
  assert "slot stays empty" in parsed.text
  assert "a writer" in parsed.text
  for rate, recall in summary["recall_at_far"].items():
    low, high = test["recall_class_interval_at_far"][rate]
    untrained = summary["recall_at_far_untrained"][rate]
    assert (
      f"{recall:.4f} {low:.4f}\u2013{high:.4f} {untrained:.4f}"
      f" {test['threshold_at_far'][rate]:.4f}"
    ) in parsed.text
  recall = summary["recall_at_far"]["0.001"]
  assert f"the model gives recall {recall:.4f}" in parsed.text
  extrapolated = summary["privacy_extrapolated"]["user_level"]["epsilon"]
  assert f"would cost ε = {extrapolated:.4g}" in parsed.text
  assert "Extrapolation, not a guarantee of this run" in parsed.text
  for line in privacy["not_covered"]:
    assert line in parsed.text
  assert "not covered by the guarantee" in parsed.text
  commit = chain_lib.Chain(run_dir).found["code_version"]["commit"]
  assert (commit or "not recorded") in parsed.text
  assert "Who is confused with whom" in parsed.text and parsed.all("input")
  assert len(charts := [a["src"] for a in parsed.all("img")]) == 7
  assert all(x.startswith("data:image/svg+xml;base64,") for x in charts)
  # Who took part is what amplification keeps secret.
  assert privacy["participation_checked"] not in parsed.text


def _numbers(values):
  """All figures in JSON values, as a page would have them."""
  if isinstance(values, dict | list):
    inner = values.values() if isinstance(values, dict) else values
    return {number for value in inner for number in _numbers(value)}
  is_figure = isinstance(values, float) and 0 < values < 1
  return {f"{values:.4f}", f"{values:.3f}"} if is_figure else set()


def test_what_may_be_given_away_has_no_figure_of_who_trains(
  run_dir, summary, whole
):
  parsed = pages.check(
    (run_dir / "release/report.html").read_text(encoding="utf-8")
  )
  assert f"ε = {summary['privacy']['epsilon']:.4g}" in parsed.text
  # Epsilon over rounds.
  assert len(parsed.all("img")) == 1
  assert not parsed.all("symbol")
  assert "ROC curve are left out of this page" in parsed.text
  figures = _numbers([summary["evaluation"], summary["evaluation_untrained"]])
  figures.add(f"{summary['wall_seconds']:,.0f} s")
  figures.discard("0.256")  # The probability to be drawn, on the page as well.
  # As numbers of their own, not as digits of others.
  shown, given_away = (
    figures & set(re.findall(r"\d[\d.,]*\d(?: s)?", page.text))
    for page in (whole, parsed)
  )
  assert len(shown) > 10
  assert not given_away
  for line in ("data_dir", summary["split"], "replayed", "embedded"):
    assert line not in parsed.text
  card = model_card.read(run_dir / "release/saved_model" / model_card.PATH)
  assert card.verification is None
  log = run_dir.with_suffix(".log").read_text()
  assert "covers release/ alone" in " ".join(log.split())


def test_what_may_be_given_away_has_figures_of_others(copy, summary, run_dir):
  own = (run_dir / "release/report.html").read_text(encoding="utf-8")
  page.restore_release(copy)
  output = copy / "release/report.html"
  assert output.read_text(encoding="utf-8") == own
  output.unlink()
  found = json.loads((copy / "summary.json").read_text())
  for when, eer in (("evaluation", 0.125), ("evaluation_untrained", None)):
    found[when]["test"]["metrics"] = {"equal_error_rate": eer}
  found["evaluation_on_training_users"] = False
  _change(copy / "summary.json", **found)
  page.restore_release(copy)
  parsed = pages.check(output.read_text(encoding="utf-8"))
  for recall in summary["recall_at_far"].values():
    assert f"{recall:.4f}" in parsed.text
  assert "EER 0.1250 none" in parsed.text
  assert len(parsed.all("img")) == 2
  assert not parsed.all("symbol")
  assert summary["split"] not in parsed.text
  # The page that was lost is recorded in place of that of the run.
  programs.succeed("account", "release", f"--run_dir={copy}")


def test_a_card_that_says_less_is_not_believed(copy):
  path = copy / "release/saved_model" / model_card.PATH
  privacy = json.loads(path.read_text())["privacy"]
  _change(path, privacy={**privacy, "epsilon": 0.01})
  for command in ("release", "epsilon"):
    ended = programs.call("account", command, f"--run_dir={copy}")
    message = "--run_dir must hold a release/saved_model/assets.extra/model_ca"
    programs.check_refused(ended, message)


def test_every_file_of_a_run_is_listed_with_what_it_reveals(run_dir, summary):
  output = programs.succeed("account", "release", f"--run_dir={run_dir}")
  assert "covers release/, and nothing outside" in output
  words = " ".join(output.split())
  assert (
    f"epsilon = {summary['privacy']['epsilon']:.6g} at delta = 0.01" in words
  )
  files = release.tell(run_dir)[0]["files"]
  for entry in files:
    assert entry["path"] in output
    assert not entry["reveals"].startswith("not known")
    is_covered = entry["kind"] == release.COVERED
    assert is_covered == entry["path"].startswith("release/")
  ended = programs.call("account", "release")
  programs.check_refused(ended, "--run_dir must be given with release")


@pytest.mark.parametrize(
  ("arguments", "said"),
  [
    (["--show_images_of_training_users"], "shows images of users who may have"),
    # As if they were of others.
    ([], "of users who took no part in training"),
  ],
)
def test_images_are_shown_if_they_may_be(
  copy, tmp_path, whole, arguments, said
):
  assert "No images are shown." in whole.text
  assert not whole.all("symbol") and len(whole.all("circle")) > 10
  is_covered = bool(arguments)
  _change(copy / "summary.json", evaluation_on_training_users=is_covered)
  shown = _write(tmp_path, copy, arguments=arguments)
  assert said in shown.text
  assert ("Not covered by ε" in shown.text) == is_covered
  assert len(shown.all("symbol")) > 30 and not shown.all("circle")


@pytest.mark.slow
def test_two_runs_are_compared(run_dir, data_dir, copy, tmp_path):
  ended, _ = _call(tmp_path, run_dir, copy)
  message = "--run_dirs must be of different runs, found one of them and a copy"
  programs.check_refused(ended, message)
  second = tmp_path / "second"
  programs.succeed("run_federated", *_flags(data_dir, second))
  _change(second / "summary.json", algorithm=_NASTY)
  parsed = _write(tmp_path, run_dir, second)
  for path, algorithm in ((run_dir, "fedemb"), (second, _NASTY)):
    found = json.loads((path / "summary.json").read_text())["recall_at_far"]
    recalls = [f"{found[rate]:.4f}" for rate in ("0.001", "0.01", "0.1")]
    row = f"{path.name} {algorithm} 3 {' '.join(recalls)}"
    assert row in parsed.text
  assert len(parsed.all("script")) == 1
  assert len(parsed.all("img")) == 15


def test_names_are_escaped(run_dir, data_dir):
  task = registry.Emnist(data_dir=data_dir).create()
  object.__setattr__(task, "class_names", dict.fromkeys(range(62), _NASTY))
  (run,) = measured_runs.read_all([str(run_dir)])
  config = types.SimpleNamespace(
    max_images=30, show_images_of_training_users=True
  )
  text = page.render([run], config, task)
  parsed = pages.check(text)
  assert len(parsed.all("script")) == 1
  assert parsed.text.count(_NASTY) > 20
  assert "a random sample of 30 of the" in parsed.text


@pytest.mark.parametrize("is_sample", [False, True])
def test_only_recalls_of_the_same_images_are_compared(
  run_dir, data_dir, is_sample
):
  task = registry.Emnist(data_dir=data_dir).create()
  (run,) = measured_runs.read_all([str(run_dir)])
  recalls, number = run.trained["recall_at_far"], run.trained["num_images"]
  assert run.results
  said = f"the model gives recall {recalls['0.001']:.4f} at false accept rate"
  recalls["0.001"] += 0.1
  if is_sample:
    run.trained["num_found"] = number
  config = types.SimpleNamespace(
    max_images=number, show_images_of_training_users=False
  )
  text = pages.check(page.render([run], config, task)).text
  assert ("one of them is not of this run" in text) == (not is_sample)
  checked = f"Checked for this page: {said} 0.001 on the {number:,} images."
  assert said in text and (checked in text) == is_sample


def test_without_the_data_there_is_no_gallery(copy, tmp_path):
  (copy / "metrics.csv").unlink()
  (copy / "evaluation.json").unlink()
  parsed = _write(tmp_path, copy, arguments=[f"--data_dir={tmp_path}/<b>"])
  assert (
    "No gallery, no map and no similarities: data_dir must hold"
    " emnist_all.sqlite, found no file" in parsed.text
  )
  assert "There is no metrics.csv" in parsed.text
  assert "There is no evaluation.json" in parsed.text
  assert not parsed.all("b") or "/<b>" in parsed.text
  assert len(parsed.all("img")) == 1
  # Other data give none either.
  other = tmp_path / "other"
  synthetic.write_emnist(other, num_users=2, seed=3, examples_per_user=20)
  again = [f"--data_dir={other}", "--overwrite"]
  parsed = _write(tmp_path, copy, arguments=again)
  assert "the data must be those of the run, with" in parsed.text


@pytest.mark.parametrize(
  ("name", "values", "message"),
  [
    ("run.json", {"rounds": 8}, "--run_dirs must hold a run.json that agrees"),
    ("summary.json", {"chain": "x"}, "--run_dirs must hold a summary.json tha"),
    ("evaluation.json", {}, "runs must be directories of finished runs, found"),
  ],
)
def test_what_does_not_fit_together_is_refused(
  copy, tmp_path, name, values, message
):
  if not values:
    evaluation = json.loads((copy / name).read_text())
    values = {"trained": evaluation["untrained"]}
    values["trained"]["recall_at_far"]["0.1"] = 0.99
  _change(copy / name, **values)
  ended, output = _call(tmp_path, copy)
  programs.check_refused(ended, message)
  assert not output.exists()


def test_mistakes_are_one_line(run_dir, copy, tmp_path):
  _change(copy / "summary.json", task="gld")
  for run_dirs, message in (
    ((run_dir, copy), "--run_dirs must be of one task"),
    ((tmp_path / "none",), "runs must be directories of finished runs, found"),
    ((), "number of run_dirs must be 1 to 6"),
  ):
    ended, output = _call(tmp_path, *run_dirs)
    programs.check_refused(ended, message)
  assert not output.exists()
  output.write_text("mine")
  ended, _ = _call(tmp_path, run_dir)
  programs.check_refused(ended, "--output must be a new file unless")
  assert output.read_text() == "mine"
