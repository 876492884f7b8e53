"""Tests of the training loop with a runtime that does arithmetic."""

import dataclasses
import functools
import json
import math
import shutil
import stat

import dp_accounting
import pytest

from tests.program import sums
from tff_fedemb import errors
from tff_fedemb.data import participation_trace
from tff_fedemb.data import population
from tff_fedemb.data.participation import fixed_size
from tff_fedemb.data.participation import min_separation
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.program import checkpoints
from tff_fedemb.program import metrics
from tff_fedemb.program import same_again
from tff_fedemb.program import training
from tff_fedemb.runtime import client_error
from tff_fedemb.strategies import tree

_NUM_USERS = 20


def _create_loop(
  directory, runtime, said=None, *, num_users=_NUM_USERS, strategy=None
):
  claim = fixed_size.FixedSize(num_users, 6, users_per_client=2)
  if strategy is not None:
    claim = min_separation.MinSeparation(num_users, 6, users_per_client=2)
  path = directory / "ledger.json"
  return training.TrainingLoop(
    process=None,
    runtime=runtime,
    users=population.Population(_NUM_USERS),
    draw=functools.partial(
      dataclasses.replace(claim, num_users=_NUM_USERS).sample, key=8
    ),
    round_event=composition.mechanism_event(2.0, strategy),
    ledger=ledger_lib.Ledger(claim, delta=1e-3),
    trace=participation_trace.TraceWriter(directory / "trace", _NUM_USERS),
    evaluate_fn=lambda w: {training.RECALL_PREFIX + "0.001": float(w) / 1000},
    checkpoints=checkpoints.Checkpoints(directory / "checkpoints"),
    metrics=metrics.MetricsLog(directory),
    config=training.TrainingConfig(
      rounds=10, evaluate_every=5, checkpoint_every=3
    ),
    publish_ledger=lambda ledger: path.write_text(ledger.to_json()),
    published=(
      ledger_lib.Ledger.from_json(path.read_text()) if path.exists() else None
    ),
    say=(said if said is not None else []).append,
  )


def _train(directory, runtime, said=None, **options):
  """Weights, state, metrics by round."""
  loop = _create_loop(directory, runtime, said, **options)
  state = loop.run(loop.start(lambda weights: weights + 1.0))
  return loop.weights(state), state, metrics.read(directory)


def _train_until(directory, round_num, error=RuntimeError, **options):
  with pytest.raises(error):
    _train(
      directory, sums.Sums(fail_in_round=round_num, error=error), **options
    )


@pytest.fixture(name="whole", scope="module")
def _whole(tmp_path_factory):
  directory = tmp_path_factory.mktemp("whole")
  said = []
  return *_train(directory, sums.Sums(), said), said


def _check_same(found, whole):
  weights, state, frame = found
  assert weights == whole[0]
  assert state.ledger.rounds == whole[1].ledger.rounds
  assert list(frame.index) == list(whole[2].index)
  for column in ("participants/checksum", "client_work/loss"):
    assert list(frame[column]) == list(whole[2][column])


def test_every_round_is_reported_and_accounted(whole):
  _, state, frame, said = whole
  assert state.rounds_done == 10
  assert state.ledger.history == ((dp_accounting.GaussianDpEvent(2.0), 10),)
  assert list(frame.index) == list(range(1, 11))
  assert (frame["participants/num_users"] == 6).all()
  evaluated = frame.dropna().index
  assert list(evaluated) == [5, 10]
  epsilon = frame["privacy/epsilon"][10]
  assert epsilon == pytest.approx(state.ledger.report().epsilon, rel=1e-4)
  assert "round 10/10" in said[-1]
  assert f"epsilon {epsilon:.4g}" in said[-1]
  assert "recall@0.001" in said[-1]


def test_skipped_clients_are_counted_and_told(tmp_path, whole):
  failed = tuple(
    client_error.ClientError(name, ValueError("bad image " * 100))
    for name in ("nine", "three")
  )
  said = []
  skipped = {3: failed, 6: failed[1:]}
  _, _, frame = _train(tmp_path, sums.Sums(skipped=skipped), said)
  assert list(frame[same_again.NUM_SKIPPED_CLIENTS]) == (
    [0, 0, 0, 2, 0, 0, 1, 0, 0, 0]
  )
  told = [line for line in said if "skipped" in line]
  assert [line.partition(" failed: ")[0] for line in told] == [
    "round 4: skipped 2 of 3 virtual clients; the first: client 'nine'",
    "round 7: skipped 1 of 3 virtual clients; the first: client 'three'",
  ]
  assert max(map(len, told)) < 500
  _, _, whole_frame, whole_said = whole
  assert (whole_frame[same_again.NUM_SKIPPED_CLIENTS] == 0).all()
  assert not any("skipped" in line for line in whole_said)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_failed_run_resumes_with_the_same_rounds(tmp_path, whole, error):
  _train_until(tmp_path, 7, error)
  said = []
  found = _train(tmp_path, sums.Sums(), said)
  _check_same(found, whole)
  # The round that did not end has released nothing.
  assert found[1].ledger == whole[1].ledger
  assert said[0] == "Resuming after round 7."
  mode = (tmp_path / "checkpoints").stat().st_mode
  assert stat.S_IMODE(mode) == 0o700


def _lose(directory, *names):
  """As after SIGKILL, or of a disk that forgets."""
  for name in names:
    (directory / "checkpoints" / name / "saved_model.pb").unlink()


def _read_ledger(directory):
  return ledger_lib.Ledger.from_json((directory / "ledger.json").read_text())


def test_without_the_last_checkpoint_it_goes_back_further(tmp_path, whole):
  """Rounds 4 to 8 are released once more, with other noise."""
  _train_until(tmp_path, 8)
  _lose(tmp_path, "round_8", "round_6")
  said = []
  found = _train(tmp_path, sums.Sums(), said)
  _check_same(found, whole)
  again = "Running rounds 4 to 8 again, with other noise, which is accounted"
  assert any(line.startswith(again) for line in said)
  ledger = found[1].ledger
  assert ledger.runs_of_rounds == [1, 1, 1, 2, 2, 2, 2, 2, 1, 1]
  assert _read_ledger(tmp_path) == ledger
  # Twice on the same users: half the variance, not ten rounds and five more.
  event = dp_accounting.GaussianDpEvent
  expected = ledger_lib.Ledger(ledger.participation, delta=1e-3)
  expected = expected.with_rounds(event(2.0), 5)
  expected = expected.with_rounds(event(2.0 / math.sqrt(2)), 5)
  assert ledger.epsilon() == pytest.approx(expected.epsilon())
  assert ledger.epsilon() > whole[1].ledger.with_rounds(event(2.0), 5).epsilon()
  with participation_trace.TraceReader(tmp_path / "trace") as trace:
    report = ledger.report(trace)
  (warning,) = (text for text in report.warnings if "again" in text)
  assert warning.startswith("5 of 10 rounds ran again, with other noise")
  assert "(5 ran 2 times)" in warning
  assert ledger_lib.Ledger.from_json(ledger.to_json()) == ledger


def test_what_was_lost_stays_accounted_for_while_it_runs_again(tmp_path):
  _train_until(tmp_path, 8)
  _lose(tmp_path, "round_8", "round_6")
  _train_until(tmp_path, 5)
  # Rounds 4 and 5 have run twice, rounds 6 to 8 once and are to run again.
  assert _read_ledger(tmp_path).runs_of_rounds == [1, 1, 1, 2, 2, 1, 1, 1]
  _lose(tmp_path, "round_5")
  _, state, _ = _train(tmp_path, sums.Sums())
  assert state.ledger.runs_of_rounds == [1, 1, 1, 3, 3, 2, 2, 2, 1, 1]


@pytest.mark.parametrize("rounds", [None, 5])
def test_a_ledger_that_was_lost_counts_what_the_trace_has(tmp_path, rounds):
  _train_until(tmp_path, 8)
  _lose(tmp_path, "round_8", "round_6")
  path = tmp_path / "ledger.json"
  if rounds is None:
    path.unlink()
  else:
    ledger = _read_ledger(tmp_path)
    path.write_text(
      dataclasses.replace(
        ledger, history=((ledger.history[0][0], rounds),)
      ).to_json()
    )
  _, state, _ = _train(tmp_path, sums.Sums())
  # Round 9 was begun, and may have come to its end.
  assert state.ledger.runs_of_rounds == [1, 1, 1, *[2] * 6, 1]


def test_correlated_noise_is_the_same_again_and_costs_nothing(tmp_path):
  strategy = tree.TreeStrategy()
  _train_until(tmp_path, 8, strategy=strategy)
  _lose(tmp_path, "round_8", "round_6")
  said = []
  _, state, _ = _train(tmp_path, sums.Sums(), said, strategy=strategy)
  assert state.ledger.runs_of_rounds == [1] * 10
  again = (
    "Running rounds 4 to 8 again, with the same noise, at no further cost."
  )
  assert again in said


@pytest.mark.parametrize("strategy", [None, tree.TreeStrategy()])
def test_the_same_noise_is_not_put_on_another_sum(tmp_path, strategy):
  _train_until(tmp_path, 8, strategy=strategy)
  _lose(tmp_path, "round_8", "round_6")
  # A client that took part in round 5 is left out when it runs again.
  again = sums.Sums(skipped={4: ["a client"]})
  if strategy is None:
    _train(tmp_path, again)
    return
  with pytest.raises(
    errors.FieldError,
    match=r"on_client_error must leave round 5 as it was .* 0, found 1",
  ):
    _train(tmp_path, again, strategy=strategy)
  assert _read_ledger(tmp_path).rounds == 8
  # Nothing was released: as it was, the run goes on.
  _, state, _ = _train(tmp_path, sums.Sums(), strategy=strategy)
  assert state.rounds_done == 10


def test_what_rounds_measured_outlives_rounds_that_run_again(tmp_path):
  strategy = tree.TreeStrategy()
  _train_until(tmp_path, 8, strategy=strategy)
  _lose(tmp_path, "round_8", "round_6")
  # Round 4 runs again and the program is killed: of round 7 there is no row in
  # the table of metrics any more.
  _train_until(tmp_path, 4, strategy=strategy)
  assert 7 not in metrics.read(tmp_path).index
  again = sums.Sums(skipped={6: ["a client"]})
  with pytest.raises(errors.FieldError, match="leave round 7 as it was"):
    _train(tmp_path, again, strategy=strategy)
  _, state, _ = _train(tmp_path, sums.Sums(), strategy=strategy)
  assert state.rounds_done == 10


def test_rounds_of_which_nothing_is_known_do_not_run_again(tmp_path):
  strategy = tree.TreeStrategy()
  _train_until(tmp_path, 8, strategy=strategy)
  measured = tmp_path / "checkpoints" / same_again.FILE_NAME
  kept = measured.read_text()
  measured.unlink()
  _lose(tmp_path, "round_8", "round_6")
  with pytest.raises(errors.FieldError, match=r"hold in .* what round 4 "):
    _train(tmp_path, sums.Sums(), strategy=strategy)
  # Round 9 was begun and did not come to its end.
  assert "8" in json.loads(kept) and "9" not in json.loads(kept)
  measured.write_text(kept)
  (tmp_path / "ledger.json").unlink()
  _, state, _ = _train(tmp_path, sums.Sums(), strategy=strategy)
  assert state.rounds_done == 10


def test_an_interrupted_first_round_costs_nothing(tmp_path, whole):
  _train_until(tmp_path, 0, KeyboardInterrupt)
  assert _read_ledger(tmp_path).rounds == 0
  _, state, _ = _train(tmp_path, sums.Sums())
  assert state.ledger == whole[1].ledger


def test_ledger_of_other_users_is_not_continued(tmp_path):
  _train_until(tmp_path, 4)
  loop = _create_loop(tmp_path, sums.Sums(), num_users=_NUM_USERS + 1)
  with pytest.raises(errors.FieldError, match="of a run on the same users"):
    loop.start(lambda weights: weights)


def test_a_run_without_its_checkpoints_does_not_begin_again(tmp_path):
  _train_until(tmp_path, 5)
  shutil.rmtree(tmp_path / "checkpoints")
  with pytest.raises(errors.FieldError, match="of the 6 rounds in its trace"):
    _train(tmp_path, sums.Sums())
