"""Small runs that do arithmetic, and what may be done to their files."""

import functools
import json
import os
import re
import shutil

import pytest

from tests.records import chains
from tests.records import sums
from tests.rounds import loops
from tff_fedemb import errors
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.mechanisms import tree_strategy
from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import min_separation
from tff_fedemb.participation import participation_trace
from tff_fedemb.records import chain as chain_lib
from tff_fedemb.records import model_card
from tff_fedemb.records import release
from tff_fedemb.report import account

ROUNDS = 6
CARD = "release/saved_model/assets.extra/model_card.json"
WEIGHTS = "release/saved_model/variables/variables.data-00000-of-00001"
NETWORK = "release/saved_model/saved_model.pb"
REPORT = "release/report.html"
OTHER = "another run"


def _plan(*, correlated):
  claim = fixed_size.FixedSize(20, 6).with_known_schedule()
  strategy = None
  if correlated:
    claim, strategy = (
      min_separation.MinSeparation(20, 6),
      tree_strategy.TreeStrategy(),
    )
  return ledger_lib.Ledger(
    claim,
    delta=1e-3,
    round_sum=composition.RoundSum(1.0, 2.0, 1_000),
  ).with_rounds(composition.Noise(2.0, strategy), ROUNDS)


class _Drifting(sums.Sums):
  """Independent noise: no round comes to what it was."""

  _drift = 0

  def next(self, state, client_ids):
    _Drifting._drift += 1
    (value, round_num), report = super().next(state, client_ids)
    return (value + _Drifting._drift, round_num), report


class OtherData(sums.Sums):
  """One example of a user is gone."""

  def next(self, state, client_ids):
    (value, round_num), report = super().next(state, client_ids)
    return (value * (1 + 1e-9), round_num), report


def check_one_line(error):
  """Checks that what was raised is a user's mistake, told in one line."""
  assert "\n" not in str(error.value)
  assert isinstance(error.value, errors.FieldError | errors.DataError)


class SmallRun:
  """A run in a directory, which others of its kind lie beside.

  Attributes:
    path: Its directory.
    correlated: Whether its noise is.
  """

  def __init__(self, path, *, correlated):
    self.path, self.correlated = path, correlated

  def train(self, runtime=None, *, finish=True):
    """Begins the run, or goes on with it, as a training program does."""
    path, planned = self.path, _plan(correlated=self.correlated)
    path.mkdir(exist_ok=True)
    if not (path / "run.json").exists():
      settings = {"noise_multiplier": 2.0, "sampling_seed": None}
      (path / "run.json").write_text(json.dumps(settings))
    chain = chains.begin(path, planned, account.open_chain(path))
    runtime = runtime or self._create_runtime()
    config = {"rounds": ROUNDS, "checkpoint_every": 2}
    with loops.start(
      path, planned, runtime, chain=chain, config=config
    ) as loop:
      loop.run()
    if finish and not (path / "summary.json").exists():
      self._finish(chain)
    return chain

  def _create_runtime(self, **options):
    return (sums.Sums if self.correlated else _Drifting)(**options)

  def _finish(self, chain):
    with participation_trace.TraceReader(
      self.path / "participation.trace"
    ) as trace:
      report = chain.ledger.report(trace)
    card = model_card.ModelCard(
      image_shape=(2, 2, 1),
      embedding_dim=3,
      privacy=model_card.describe_privacy(report),
      training={"chain": chain.head},
    )
    (self.path / WEIGHTS).parent.mkdir(parents=True)
    model_card.write(card, self.path / CARD)
    for name in (WEIGHTS, NETWORK, REPORT):
      (self.path / name).write_text(f"{name} of {self.path.name}")
    chain.record_given_away(release.digest_files(self.path))
    summary = {
      "privacy": report.to_json(),
      "chain": chain.head,
      "rounds": ROUNDS,
      "num_private_parameters": 1_000,
    }
    (self.path / "summary.json").write_text(json.dumps(summary))

  def kill(self):
    """Round 6 had begun; the last checkpoint is that of round 4."""
    with pytest.raises(RuntimeError):
      self.train(self._create_runtime(fail_in_round=5))
    self.delete("checkpoints/round_5")

  @property
  def lines(self):
    """Those of the chain."""
    return (self.path / chain_lib.NAME).read_text().splitlines(keepends=True)

  @lines.setter
  def lines(self, lines):
    (self.path / chain_lib.NAME).write_text("".join(lines))

  def cut(self, rounds=3):
    """Ends the chain, which is still one, at a round."""
    ends = [i for i, x in enumerate(self.lines) if f'"round": {rounds},' in x]
    self.lines = self.lines[: ends[0] + 1]

  def replace(self, old, new, *, link=False):
    """Edits the chain, also the digests that link its lines if asked to."""
    text = "".join(self.lines)
    assert old in text
    lines = text.replace(old, new, 1).splitlines(keepends=True)
    for number in range(1, len(lines) if link else 0):
      digest = chain_lib.digest(lines[number - 1].encode())
      lines[number] = re.sub(
        r'"previous": "\w+"', f'"previous": "{digest}"', lines[number]
      )
    self.lines = lines

  def delete(self, *names):
    """Deletes files and directories."""
    for name in names:
      path = self.path / name
      shutil.rmtree(path) if path.is_dir() else path.unlink()

  def take(self, *names):
    """Takes files of the other run in place of one's own."""
    self.delete(*names)
    for name in names:
      other = self.path.parent / OTHER / name
      copy = shutil.copytree if other.is_dir() else shutil.copy
      copy(other, self.path / name)

  def append(self, name, data):
    """Writes bytes to the end of a file."""
    with open(self.path / name, "ab") as file:
      file.write(data)

  def shorten(self, name):
    """Cuts the last bytes of a file."""
    os.truncate(self.path / name, os.path.getsize(self.path / name) - 3)

  def edit(self, name, **changes):
    """Edits a file of JSON values, whose names lie below each other."""
    values = json.loads((self.path / name).read_text())
    for key, value in changes.items():
      *outer, last = key.split("__")
      functools.reduce(dict.__getitem__, outer, values)[last] = value
    (self.path / name).write_text(json.dumps(values))

  def edit_trace(self, *, rounds=ROUNDS, move_a_user=False):
    """Writes the first rounds of the trace anew, with another user in one."""
    path = self.path / "participation.trace"
    with participation_trace.TraceReader(path) as trace:
      cohorts = [each.slots for each in trace.read(rounds)]
    if move_a_user:
      cohorts[2][0] = min({*range(20)} - {*cohorts[2].tolist()})
    path.unlink()
    with participation_trace.TraceWriter(path, 20) as trace:
      for number, slots in enumerate(cohorts):
        trace.record(number, slots.reshape(-1, 1))
