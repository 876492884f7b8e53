"""Tests of the program that compares classifiers over epsilons."""

import json

from PIL import Image

from tests.binaries import programs
from tests.features import feature_examples


def test_program(tmp_path):
  files = tmp_path
  feature_examples.write_pair(files)
  *rows, warning, written = feature_examples.run_program(
    "sweep_features",
    f"--train={files}/train.npz",
    f"--test={files}/test.npz",
    "--methods=least_squares,least_squares:covariance=per_class",
    "--epsilons=inf,1",
    "--delta=0.1",
    "--num_fits=2",
    f"--output_json={files}/sweep.json",
    f"--output_png={files}/sweep.png",
  )
  header, rule, first, second = rows
  cells = [cell.strip() for cell in header.strip("|").split("|")]
  assert cells == ["method", "epsilon 1", "no noise"]
  assert set(rule) == set("|- ")
  assert first.startswith("| least_squares  ")
  assert second.startswith("| least_squares:covariance=per_class |")
  result = json.loads((files / "sweep.json").read_text())
  for row, results in ((first, [0, 1]), (second, [2, 3])):
    for cell, index in zip(row.split("|")[2:], results, strict=False):
      found = result["results"][index]
      assert cell.strip() == f"{found['mean']:.4f} ± {found['stdev']:.4f}"
  assert warning.startswith("warning: delta 0.1 is not below 1 / 60")
  assert written == f"Written to {files}/sweep.json and {files}/sweep.png."
  with Image.open(files / "sweep.png") as image:
    assert image.format == "PNG"


def test_refuses_in_one_line(tmp_path):
  for arguments, message in (
    ((), "--output_json must be given, found nothing."),
    (("--output_json=o",), "--train must have as many files as --test, at lea"),
    (
      ("--output_json=o", "--train=a", "--test=b", "--methods=sgd:steps=x"),
      "--methods must have hyperparameters that fit, found 'sgd:steps=x': step",
    ),
    (("--seed=1",), "Unknown command line flag 'seed'"),
  ):
    ended = programs.call("sweep_features", *arguments)
    assert ended.status == 1
    assert message in ended.errors
