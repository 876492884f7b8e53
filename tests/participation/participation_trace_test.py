"""Tests of the record of who took part."""

import os
import stat
import subprocess
import sys

import pytest

from tests.participation import traces
from tff_fedemb.participation import participation_trace

# Bytes before the payload, as the format is described.
_HEADER_SIZE = 24
_RECORD_SIZE = 24


@pytest.fixture(name="trace")
def _trace(tmp_path):
  path = tmp_path / "trace"
  traces.write(path, traces.NUM_USERS, traces.ROUNDS)
  return path


def _read(path):
  with participation_trace.TraceReader(path) as reader:
    return [(r.number, r.num_clients, r.slots.tolist()) for r in reader]


_ROUNDS_READ = [
  (0, 2, [3, 5, 99]),
  (1, 0, []),
  (2, 3, [0, 3, 98]),
  (3, 1, [1, 3, 70]),
]


def test_what_is_written_is_read(trace):
  assert _read(trace) == _ROUNDS_READ
  with participation_trace.TraceReader(trace) as reader:
    assert (reader.num_users, reader.num_rounds) == (100, 4)
    assert [r.number for r in reader.read(2)] == [0, 1]
    # In the order of the slots, virtual clients by their first users.
    places = [recorded.places.tolist() for recorded in reader]
    assert places == [[0, 0, 1], [], [0, 1, 2], [0, 0, 0]]


def test_the_order_of_virtual_clients_is_not_recorded():
  of = participation_trace.RecordedRound.of
  one = of(0, traces.group([7, 2], [5], [1, 9]))
  assert one.slots.tolist() == [1, 2, 5, 7, 9]
  assert one.places.tolist() == [0, 1, 2, 1, 0]
  assert one.is_as(of(0, traces.group([9, 1], [2, 7], [5])))
  assert not one.is_as(of(0, traces.group([7, 5], [2], [1, 9])))
  assert not one.is_as(of(0, traces.group([7, 2, 5], [1, 9])))


@pytest.mark.parametrize("num_users", [2, 5_000_000_000])
def test_gaps_of_any_size_are_kept(tmp_path, num_users):
  slots = [0, num_users - 1]
  rounds = [traces.group(slots), traces.group(slots[1:])]
  traces.write(tmp_path / "trace", num_users, rounds)
  assert _read(tmp_path / "trace") == [(0, 1, slots), (1, 1, slots[1:])]


def test_a_killed_process_loses_nothing(tmp_path):
  program = (
    "import os, signal, sys\n"
    "import numpy as np\n"
    "from tff_fedemb.participation import participation_trace\n"
    "writer = participation_trace.TraceWriter(sys.argv[1], 10)\n"
    "for r in range(3):\n"
    "  writer.record(r, [np.array([r, 9])])\n"
    "os.kill(os.getpid(), signal.SIGKILL)\n"
  )
  path = tmp_path / "trace"
  ended = subprocess.run([sys.executable, "-c", program, path], check=False)
  assert ended.returncode == -9
  assert stat.S_IMODE(path.stat().st_mode) == 0o600
  with participation_trace.TraceReader(path) as early:
    with participation_trace.TraceWriter(path, 10) as writer:
      writer.record(3, traces.group([4]))
      assert _read(path) == [*((r, 1, [r, 9]) for r in range(3)), (3, 1, [4])]
    # As it was when it was opened.
    assert [r.number for r in early] == [0, 1, 2]


def test_a_resumed_run_repeats_rounds_and_goes_on(trace):
  with participation_trace.TraceWriter(trace, 100) as writer:
    # The order inside the round is not recorded.
    writer.record(2, traces.group([98], [0], [3]))
    writer.record(3, traces.ROUNDS[3])
    writer.record(4, traces.group([7]))
  assert _read(trace) == [*_ROUNDS_READ, (4, 1, [7])]


@pytest.mark.parametrize(
  ("clients", "message"),
  [
    (traces.group([0], [3], [97]), "2 users in one of them only.*slot 97"),
    (traces.group([0, 98], [3]), "3 in 2, with 0 users in one of them only"),
    ([], "must be as recorded"),
  ],
)
def test_a_round_repeated_with_others_is_refused(trace, clients, message):
  before = trace.read_bytes()
  writer = participation_trace.TraceWriter(trace, 100)
  with writer, pytest.raises(participation_trace.TraceError, match=message):
    writer.record(2, clients)
  assert trace.read_bytes() == before


@pytest.mark.parametrize(
  ("round_num", "clients", "message"),
  [
    (4, traces.group([1, 2], [2]), "found slot 2 repeated"),
    (4, traces.group([1], []), "virtual client must have a user, found none"),
    (4, traces.group([-1, 5]), "must be at least 0 and below 100, found -1"),
    (2, traces.group([1, 1]), "found slot 1 repeated"),
    (5, traces.group([1]), "at most 4, the first round that is not recorded"),
    (-1, traces.group([1]), "round_num must be at least 0"),
  ],
)
def test_what_cannot_be_is_not_recorded(trace, round_num, clients, message):
  before = trace.read_bytes()
  with participation_trace.TraceWriter(trace, 100) as writer:
    with pytest.raises(ValueError, match=message):
      writer.record(round_num, clients)
    assert trace.read_bytes() == before
    writer.record(4, traces.group([1]))
  assert len(_read(trace)) == 5


def test_a_last_record_cut_anywhere_is_dropped(tmp_path):
  path = tmp_path / "trace"
  traces.write(path, 100, traces.ROUNDS[:3])
  start = path.stat().st_size
  with participation_trace.TraceWriter(path, 100) as writer:
    writer.record(3, traces.ROUNDS[3])
  whole = path.read_bytes()
  for size in range(start, len(whole)):
    path.write_bytes(whole[:size])
    assert _read(path) == _ROUNDS_READ[:3]
    assert path.stat().st_size == size
    with participation_trace.TraceWriter(path, 100) as writer:
      assert path.stat().st_size == start
      writer.record(3, traces.ROUNDS[3])
    assert path.read_bytes() == whole


def test_a_last_record_with_another_payload_is_dropped(trace):
  whole = trace.read_bytes()
  damaged = whole[:-1] + bytes([whole[-1] ^ 1])
  # Before a torn record it is damage.
  trace.write_bytes(damaged + b"torn")
  with pytest.raises(participation_trace.TraceError, match="round 3"):
    _read(trace)
  trace.write_bytes(damaged)
  assert _read(trace) == _ROUNDS_READ[:3]
  with participation_trace.TraceWriter(trace, 100) as writer:
    assert writer.num_rounds == 3
    writer.record(3, traces.ROUNDS[3])
  assert trace.read_bytes() == whole


def test_a_program_killed_at_the_start_leaves_no_trace(tmp_path, monkeypatch):
  def fail(*_):
    raise KeyboardInterrupt

  with monkeypatch.context() as patch:
    patch.setattr(os, "fsync", fail)
    with pytest.raises(KeyboardInterrupt):
      participation_trace.TraceWriter(tmp_path / "trace", 100)
  assert not list(tmp_path.iterdir())
  traces.write(tmp_path / "trace", 100, traces.ROUNDS)
  assert _read(tmp_path / "trace") == _ROUNDS_READ


def test_damage_elsewhere_is_refused_wherever_it_is(tmp_path):
  path = tmp_path / "trace"
  traces.write(path, 100, traces.ROUNDS[:3])
  last = path.stat().st_size
  traces.write(path, 100, traces.ROUNDS)
  whole = path.read_bytes()
  # Up to the last record's own header; its payload may be torn.
  for place in range(last + _RECORD_SIZE):
    damaged = bytearray(whole)
    damaged[place] ^= 0x10
    path.write_bytes(damaged)
    with pytest.raises(participation_trace.TraceError, match="must be"):
      _read(path)
    if place < _HEADER_SIZE:
      with pytest.raises(participation_trace.TraceError, match="a trace"):
        participation_trace.TraceWriter(path, 100)
    assert path.read_bytes() == bytes(damaged)


def test_a_missing_record_is_damage(tmp_path):
  ends, path = [], tmp_path / "trace"
  for count in (1, 2, 4):
    traces.write(path, 100, traces.ROUNDS[:count])
    ends.append(path.stat().st_size)
  whole = path.read_bytes()
  path.write_bytes(whole[: ends[0]] + whole[ends[1] :])
  with pytest.raises(
    participation_trace.TraceError,
    match=f"damage in the record of round 1 at byte {ends[0]}",
  ):
    _read(path)


def test_files_that_are_no_trace_are_named(tmp_path, trace):
  with pytest.raises(ValueError, match="No such file"):
    participation_trace.TraceReader(tmp_path / "missing")
  foreign = tmp_path / "foreign"
  foreign.write_bytes(b"SQLite format 3\0" * 9)
  for opened in (
    lambda: participation_trace.TraceReader(foreign),
    lambda: participation_trace.TraceWriter(foreign, 100),
  ):
    with pytest.raises(ValueError, match="foreign must be a trace"):
      opened()
  assert foreign.read_bytes() == b"SQLite format 3\0" * 9
  with pytest.raises(ValueError, match="a trace of 101 users, found 100"):
    participation_trace.TraceWriter(trace, 101)
  with pytest.raises(ValueError, match="num_users must be an integer"):
    participation_trace.TraceWriter(tmp_path / "new", 0)
  assert not (tmp_path / "new").exists()
