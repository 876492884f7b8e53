"""Tests of the table of runs."""

import json

from binaries import tabulate


def _write(path, *, seed, recall, algorithm="fedemb", extrapolated=None):
  path.mkdir()
  settings = {
    "seed": seed,
    "noise_multiplier": 0.1,
    "algorithm": algorithm,
    "aggregator": "blt",
  }
  (path / "flags.json").write_text(json.dumps(settings))
  summary = {
    "task": "omniglot",
    "algorithm": algorithm,
    "rounds": 7,
    "recall_at_far": {"0.001": recall},
    "recall_at_far_untrained": {"0.001": 0.25},
    "privacy": {"epsilon": "inf"},
    "privacy_extrapolated": extrapolated,
  }
  (path / "summary.json").write_text(json.dumps(summary))
  return str(path)


def test_seeds_share_a_row(tmp_path, capsys):
  paths = [
    _write(tmp_path / "a", seed=1, recall=0.5),
    _write(tmp_path / "b", seed=2, recall=0.7),
    _write(
      tmp_path / "c",
      seed=1,
      recall=0.125,
      algorithm="fedavg",
      extrapolated={
        "user_level": {"epsilon": 12.345},
        "authors": {"epsilon": 3.9},
      },
    ),
  ]
  assert tabulate.main(paths) == 0
  lines = capsys.readouterr().out.splitlines()
  assert len(lines) == 4
  # Deviation of 0.5 and 0.7 is 0.1 sqrt(2).
  assert "| 0.6000 +- 0.1414 | 0.2500 +- 0.0000 | 2 | inf | - |" in lines[2]
  assert lines[3].endswith(
    "| fedavg | blt | - | 0.1 | - | 7 | 0.1250 | 0.2500 | 1 | inf | 12.3; 3.9 |"
  )


def test_mistakes_are_one_line(tmp_path, capsys):
  assert tabulate.main([]) == 1
  capsys.readouterr()
  assert tabulate.main([str(tmp_path)]) == 1
  error = capsys.readouterr().err
  assert error.count("\n") == 1
  assert "directories of finished runs" in error
