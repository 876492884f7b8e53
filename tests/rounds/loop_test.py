"""Tests of the training loop with a runtime that does arithmetic."""

import functools
import math

import pytest

from tests.records import chains
from tests.records import sums
from tests.rounds import loops
from tff_fedemb import errors
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import participation_trace
from tff_fedemb.records import chain as chain_lib
from tff_fedemb.records import metrics
from tff_fedemb.runtime import client_error

_NUM_USERS = 20


def _create_loop(directory, runtime, said=None, average=None, **others):
  claim = fixed_size.FixedSize(_NUM_USERS, 6, users_per_client=2)
  planned = ledger_lib.Ledger(claim, delta=1e-3).with_rounds(
    composition.Noise(2.0), 10
  )
  chain = chain_lib.Chain(directory)
  chain.begin(planned)
  return loops.create(
    directory,
    runtime,
    chain=chain,
    trace=participation_trace.TraceWriter(directory / "trace", _NUM_USERS),
    draw=functools.partial(claim.sample, key=8),
    config={
      "rounds": 10,
      "evaluate_every": 5,
      "checkpoint_every": 3,
      "export_average": average,
    },
    evaluate_fn=lambda w: {metrics.RECALL_PREFIX + "0.001": float(w) / 1000},
    say=(said if said is not None else []).append,
    **others,
  )


def _train(directory, runtime, said=None, **others):
  """Returns weights, ledger, and metrics by round."""
  loop = _create_loop(directory, runtime, said, **others)
  loop.start(lambda weights: weights + 1.0)
  loop.run()
  return loop.weights, loop.chain.ledger, metrics.read(directory)


def _train_until(directory, round_num, error=RuntimeError):
  with pytest.raises(error):
    _train(directory, sums.Sums(fail_in_round=round_num, error=error))


@pytest.fixture(name="whole", scope="module")
def _whole(tmp_path_factory):
  directory = tmp_path_factory.mktemp("whole")
  said = []
  return *_train(directory, sums.Sums(), said), said


def _check_same(found, whole):
  weights, ledger, frame = found
  assert weights == whole[0]
  assert ledger.rounds == whole[1].rounds
  assert list(frame.index) == list(whole[2].index)
  for column in ("participants/checksum", "client_work/loss"):
    assert list(frame[column]) == list(whole[2][column])


def test_every_round_is_reported_and_accounted(whole):
  _, ledger, frame, said = whole
  assert ledger.history == (
    composition.Rounds(count=10, noise=composition.Noise(2.0)),
  )
  assert list(frame.index) == list(range(1, 11))
  assert (frame["participants/num_users"] == 6).all()
  evaluated = frame.dropna().index
  assert list(evaluated) == [5, 10]
  epsilon = frame["privacy/epsilon"][10]
  assert epsilon == pytest.approx(ledger.report().epsilon, rel=1e-4)
  assert "round 10/10" in said[-1]
  assert f"epsilon {epsilon:.4g}" in said[-1]
  assert "recall@0.001" in said[-1]


def test_an_average_is_evaluated_and_goes_on_after_an_end(tmp_path, whole):
  ended = tmp_path / "ended"
  directory = tmp_path / "whole"
  ended.mkdir()
  directory.mkdir()
  whole_loop = _create_loop(directory, sums.Sums(), average=0.6)
  models = []
  record = whole_loop.chain.record_round

  def remember(rounds_done, participants, weights):
    models.append(float(weights))
    record(rounds_done, participants, weights)

  whole_loop.chain.record_round = remember
  whole_loop.start(lambda weights: weights + 1.0)
  start = float(whole_loop.weights)
  whole_loop.run()
  assert float(whole_loop.weights) == whole[0] == models[-1]
  expected = start
  for number, model in enumerate(models, 1):
    share = min(0.6, (1 + number) / (10 + number))
    expected = share * expected + (1 - share) * model
  assert float(whole_loop.model) == pytest.approx(expected, rel=1e-6)
  frame = metrics.read(directory)
  recall = frame[metrics.RECALL_PREFIX + "0.001"][10]
  assert recall == pytest.approx(expected / 1000, rel=1e-6)
  # One program ends in between, and another one goes on.
  with pytest.raises(RuntimeError):
    _train(ended, sums.Sums(fail_in_round=5), average=0.6)
  again = _create_loop(ended, sums.Sums(), average=0.6)
  again.start(lambda weights: weights + 1.0)
  assert again.state.rounds_done
  again.run()
  assert float(again.model) == float(whole_loop.model)


def test_skipped_clients_are_counted_and_told(tmp_path, whole):
  failed = tuple(
    client_error.ClientError(name, ValueError("bad image " * 100))
    for name in ("nine", "three")
  )
  said = []
  skipped = {3: failed, 6: failed[1:]}
  runtime = sums.Sums(skipped=skipped, rejected={4: 1})
  _, _, frame = _train(tmp_path, runtime, said)
  counts = [0, 0, 0, 2, 0, 0, 1, 0, 0, 0]
  assert list(frame[metrics.NUM_SKIPPED_CLIENTS]) == counts
  told = [line for line in said if "skipped" in line]
  assert [line.partition(" failed: ")[0] for line in told] == [
    "round 4: skipped 2 of 3 virtual clients; the first: client 'nine'",
    "round 7: skipped 1 of 3 virtual clients; the first: client 'three'",
  ]
  assert max(map(len, told)) < 500
  assert "rejected 1 of 3" in next(line for line in said if " 5/10" in line)
  _, _, whole_frame, whole_said = whole
  assert (whole_frame[metrics.NUM_SKIPPED_CLIENTS] == 0).all()
  assert not any("skipped" in line for line in whole_said)


@pytest.mark.parametrize(
  ("skipped", "rejected"),
  [
    ({}, {number: 3 for number in range(2, 10)}),
    # Clients that failed were not accepted either.
    ({2: 1, 3: 3, 4: 1}, {2: 2, 4: 2, **{n: 3 for n in range(5, 10)}}),
  ],
)
def test_a_run_that_accepts_nobody_ends(tmp_path, skipped, rejected):
  failed = client_error.ClientError("nine", ValueError("bad image"))
  skipped = {number: (failed,) * times for number, times in skipped.items()}
  runtime = sums.Sums(skipped=skipped, rejected=rejected)
  with pytest.raises(errors.DivergedError) as error:
    _train(tmp_path, runtime)
  assert "in rounds 3 to 7" in str(error.value)
  assert _read_ledger(tmp_path).rounds == 7
  assert len(metrics.read(tmp_path)) == 7
  # The same command does not spend more.
  with pytest.raises(errors.DivergedError, match="in rounds 3 to 7"):
    _train(tmp_path, sums.Sums())
  assert _read_ledger(tmp_path).rounds == 7


def test_a_trial_that_accepts_nobody_goes_on(tmp_path):
  """Who was accepted is known from users' updates, without noise."""
  rejected = {number: 3 for number in range(2, 10)}
  _train(tmp_path, sums.Sums(rejected=rejected), gives_up=False)
  assert _read_ledger(tmp_path).rounds == 10


def test_rounds_without_anybody_in_them_do_not_end_a_run(tmp_path):
  """Poisson sampling draws nobody from time to time."""
  loop = _create_loop(tmp_path, sums.Sums(rejected={0: 3, 1: 3, 8: 3, 9: 3}))
  draw = loop.draw
  loop.draw = lambda number: [] if 2 <= number < 8 else draw(number)
  loop.start(lambda weights: weights)
  loop.run()
  assert loop.state.rounds_done == 10


def _lose(directory, *names):
  """Damages checkpoints, as SIGKILL or a failing disk may."""
  for name in names:
    (directory / "checkpoints" / name / "saved_model.pb").unlink()


def _read_ledger(directory):
  return chain_lib.Chain(directory).ledger


def test_without_the_last_checkpoint_it_goes_back_further(tmp_path, whole):
  """Rounds 4 to 8 are released once more, with other noise."""
  _train_until(tmp_path, 8)
  _lose(tmp_path, "round_8", "round_6")
  said = []
  found = _train(tmp_path, sums.Sums(), said)
  _check_same(found, whole)
  again = "Running rounds 4 to 8 again, with other noise, which is accounted"
  assert any(line.startswith(again) for line in said)
  ledger = found[1]
  assert chains.runs_of_rounds(ledger) == [1, 1, 1, 2, 2, 2, 2, 2, 1, 1]
  assert _read_ledger(tmp_path) == ledger
  # Two noisy sums of the same users count as one with half the variance. That
  # costs more than five further rounds.
  once = composition.Noise(2.0)
  twice = composition.Noise(2.0 / math.sqrt(2))
  expected = ledger_lib.Ledger(ledger.participation, delta=1e-3)
  expected = expected.with_rounds(once, 5).with_rounds(twice, 5)
  epsilon = ledger.tightest_epsilon()
  assert epsilon == pytest.approx(expected.tightest_epsilon())
  assert epsilon > whole[1].with_rounds(once, 5).tightest_epsilon()
  with participation_trace.TraceReader(tmp_path / "trace") as trace:
    report = ledger.report(trace)
  (warning,) = (text for text in report.warnings if "again" in text)
  assert warning.startswith("5 of 10 rounds ran again, with other noise")
  assert "(5 ran 2 times)" in warning


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_failed_run_resumes_with_the_same_rounds(tmp_path, whole, error):
  _train_until(tmp_path, 7, error)
  said = []
  found = _train(tmp_path, sums.Sums(), said)
  _check_same(found, whole)
  # The round that did not end has released nothing.
  assert found[1] == whole[1]
  assert said[0] == "Resuming after round 7."


def test_a_full_disk_does_not_run_a_round_twice(tmp_path, whole, monkeypatch):
  """Round 5 has run, and is paid for, when its metrics cannot be written."""
  release = metrics.MetricsLog.release

  def fail(log, values, rounds_done):
    if rounds_done == 5:
      raise errors.StorageError("full")
    release(log, values, rounds_done)

  with monkeypatch.context() as patched:
    patched.setattr(metrics.MetricsLog, "release", fail)
    with pytest.raises(errors.StorageError):
      _train(tmp_path, sums.Sums())
  said = []
  weights, ledger, frame = _train(tmp_path, sums.Sums(), said)
  assert said[0] == "Resuming after round 5."
  assert weights == whole[0]
  assert ledger == whole[1]
  assert list(frame.index) == [1, 2, 3, 4, 6, 7, 8, 9, 10]
