"""Tests of the program that makes a table of runs, and a picture."""

from PIL import Image

from tests.binaries import programs
from tests.plots import drawn
from tests.report import measured_runs_test
from tests.spec import specs
from tff_fedemb.report import measured_runs
from tff_fedemb.report import tabulate as tabulate_run
from tff_fedemb.spec import spec as spec_lib

write_run = measured_runs_test.write_run


def _call(*arguments):
  ended = programs.call("tabulate", *map(str, arguments))
  assert ended.status == 0, ended.errors
  return ended, ended.output.splitlines()


def test_seeds_share_a_row(tmp_path):
  extrapolated = {
    "user_level": {"epsilon": 12.345},
    "authors": {"epsilon": 3.9},
    "delta": 2e-8,
    "zcdp": 1.2824,
  }
  paths = [
    write_run(tmp_path / name, recall=recall, **options)
    for name, recall, options in (
      ("a", 0.5, {"noise": 0.0}),
      ("b", 0.7, {"noise": 0.0, "seed": 2}),
      ("c", 0.125, {"algorithm": "fedavg", "extrapolated": extrapolated}),
    )
  ]
  _, lines = _call(*paths)
  assert lines[0].startswith("| run | task |")
  # Deviation of 0.5 and 0.7 is 0.1 sqrt(2).
  assert lines[2:] == [
    "| a, b | omniglot | fedemb | tree | min_separation | 0.0 | 0.5 | 20"
    " | 0.3000 +- 0.0707 | 0.6000 +- 0.1414 | 0.1000 +- 0.0000 | 200 | 2"
    " | inf | 0.001 | - | - | - | - |",
    "| c | omniglot | fedavg | tree | min_separation | 0.1 | 0.5 | 20 | 0.0625"
    " | 0.1250 | 0.1000 | 200 | 1 | 1e+05 | 0.001 | - | 12.3; 3.9 | 2e-08"
    " | 1.28 |",
  ]


def test_the_row_of_seeds_tells_what_the_dearest_cost(tmp_path):
  """A run that was killed in between has paid twice for a round."""
  paths = [
    write_run(tmp_path / f"{seed}", noise=1.0, epsilon=epsilon, seed=seed)
    for seed, epsilon in ((1, 2.0), (2, 9.0))
  ]
  _, (*_, row) = _call(*paths)
  assert " | 200 | 2 | 9 | 0.001 | " in row


def test_changes_that_differ_in_a_folder_alone_are_two(tmp_path):
  starts = [None, "/x/omniglot/saved_model", "/x/emnist/saved_model"]
  for number, start in enumerate(starts):
    path = tmp_path / f"{number}"
    write_run(path, noise=1.0, pretrained_backbone=start)
  runs = measured_runs.find([str(path) for path in tmp_path.iterdir()])
  compared = tabulate_run.compare(runs, tmp_path / "0")
  assert compared.change.tolist() == [
    "",
    *(f"pretrained_backbone={start}" for start in starts[1:]),
  ]


def test_other_metrics_have_columns_where_they_were_measured(tmp_path):
  """With more measured of it, a run is the same."""
  _, lines = _call(
    write_run(tmp_path / "a"),
    write_run(tmp_path / "b", clip_norm=1.0, metrics={"r_precision": 0.25}),
    write_run(
      tmp_path / "c",
      clip_norm=1.0,
      seed=2,
      metrics={"r_precision": 0.75},
      evaluation=spec_lib.Evaluation(metrics=True),
    ),
  )
  assert "| untrained | R-precision | test images |" in lines[0]
  assert "| 0.1000 | - | 200 |" in lines[2]
  assert "| 0.5000 +- 0.3536 | 200 |" in lines[3]


def test_recalls_of_other_images_are_told(tmp_path):
  """Runs a/x and b/x differ in their images; b/x and c/x are two seeds."""
  paths = [
    write_run(tmp_path / name / "x", seed=seed, clip_norm=clip, num_images=num)
    for name, seed, clip, num in (
      *(("a", 1, 0.5, 200), ("b", 1, 1.0, 20_000), ("c", 2, 1.0, 20_000)),
    )
  ]
  ended, lines = _call(*paths)
  names = [line.partition("omniglot")[0] for line in lines[2:]]
  assert names == ["| a/x | ", "| b/x, c/x | "]
  assert ended.errors == (
    "warning: recalls are of 200 or 20,000 test images, and cannot be compared"
    " across these\n"
  )


def test_mistakes_are_one_line(tmp_path):
  run_dir = str(write_run(tmp_path / "a", noise=0.0))
  path = tmp_path / "recall.png"
  for arguments, error in (
    ([], "runs must hold a finished run"),
    ([run_dir, "--output_png=/none/a.png"], "--output_png must be in"),
    (
      [run_dir, f"--baseline={run_dir}", "--x_axis=num_users"],
      "--x_axis must be set beside output_png and no baseline, found num_users",
    ),
    ([run_dir, f"--output_png={path}"], "runs must include some with noise"),
  ):
    ended = programs.call("tabulate", *arguments)
    programs.check_refused(ended, error)
  # A picture that is refused costs no table.
  assert ended.output.splitlines()[2].startswith("| a | omniglot |")
  assert not path.exists()


def test_picture_of_measured_epsilons(tmp_path):
  for noise in (0.0, 1.0):
    write_run(tmp_path / "study" / f"z{noise}", noise=noise)
  (tmp_path / "study" / "running").mkdir()
  path = tmp_path / "recall.png"
  ended, lines = _call(f"--output_png={path}", f"{tmp_path}/study/*")
  assert "not finished, left out: running" in ended.errors
  assert len(lines) == 2 + 2
  with Image.open(path) as image:
    assert image.format == "PNG"


def test_two_deltas(tmp_path):
  for name, delta in (("a", 1e-3), ("b", 1e-4)):
    write_run(tmp_path / name, delta=delta)
  runs = measured_runs.find([f"{tmp_path}/*"])
  figure = drawn.figure_of(tabulate_run.draw_epsilons, runs)
  assert figure.axes[0].get_xlabel() == "ε"
  assert drawn.legend_of(figure)[1:3] == [
    "fedemb, tree, δ = 0.0001",
    "fedemb, tree, δ = 0.001",
  ]


def test_picture_over_users(tmp_path):
  """Seeds are one point; a search has one setting for a number of users."""
  for name, recall, options in (
    ("a", 0.25, {}),
    ("b", 0.75, {"seed": 2}),
    ("c", 0.125, {"algorithm": "fedavg"}),
  ):
    write_run(tmp_path / name, recall=recall, **options)
  path = tmp_path / "users.png"
  flags = (f"--output_png={path}", "--x_axis=num_users")
  _call(*flags, f"{tmp_path}/?")
  figure = drawn.figure_of(
    tabulate_run.draw_users, measured_runs.find([f"{tmp_path}/?"])
  )
  fedavg, fedemb = figure.axes[0].containers
  (users,) = drawn.values(fedemb.lines[0], "x")
  assert users == specs.PARTICIPATION.num_users
  assert [drawn.values(c.lines[0], "y")[0] for c in (fedavg, fedemb)] == [
    *(0.125, 0.5)
  ]
  assert drawn.legend_of(figure)[0] == "algorithm (1-2 seeds)"
  drawn.assert_nothing_overlaps(figure)
  write_run(tmp_path / "d", clip_norm=1.0)
  ended = programs.call("tabulate", *flags, "--overwrite", f"{tmp_path}/?")
  programs.check_refused(ended, "runs must have one setting of fedemb with")


def test_changes_of_a_baseline(tmp_path):
  for name, recall, options in (
    ("a_larger", 0.75, {"seed": 1, "rounds": 8}),
    ("base_1", 0.25, {"seed": 1}),
    ("base_2", 0.5, {"seed": 2}),
    ("c_both", 0.125, {"seed": 3, "rounds": 8, "clip_norm": 1.0}),
  ):
    write_run(tmp_path / name, noise=1.0, epsilon=2.0, recall=recall, **options)
  folders = sorted(map(str, tmp_path.iterdir()))
  picture = tmp_path / "changes.png"
  baseline = f"--baseline={tmp_path / 'base_1'}"
  _, lines = _call(f"--output_png={picture}", baseline, *folders)
  header, _, *rows = lines
  assert header.startswith("| change | run | task |")
  starts = [row.split(" | ")[0] for row in rows]
  assert starts == ["| none", "| rounds=8", "| clip_norm=1.0, rounds=8"]
  # Also if the baseline is named twice, there are two seeds of it.
  assert _call(baseline, *(f"{f}/" for f in folders))[1] == lines
  assert picture.exists()
  programs.check_refused(
    programs.call(
      *("tabulate", f"--output_png={tmp_path}/b.png", baseline, folders[2])
    ),
    "runs must change something of the baseline",
  )
  (tmp_path / "base_1" / "summary.json").unlink()
  ended = programs.call("tabulate", baseline, *folders)
  assert "--baseline must be the directory of a finished" in ended.errors
