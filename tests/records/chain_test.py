"""Tests of the chain: digests, lines, what is refused."""

import hashlib
import os
import stat

import numpy as np
import pytest

from tests.records import chains
from tff_fedemb import errors
from tff_fedemb.records import chain as chain_lib


def test_a_digest_is_of_types_shapes_and_bytes():
  found = chain_lib.digest_of({"b": np.float32([[1.0, 2.0]]), "a": np.int64(3)})
  number = hashlib.sha256(np.array(3, "<i8").tobytes()).hexdigest()
  row = hashlib.sha256(np.array([1.0, 2.0], "<f4").tobytes()).hexdigest()
  text = f"[('<i8', ()), ('<f4', (1, 2))] {[number, row]}"
  assert found == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
  "other",
  [
    np.float32([[1.0, -0.0]]),
    np.float32([1.0, 0.0]),
    np.float64([[1.0, 0.0]]),
    np.float32([[1.0, 1e-45]]),
    b"seed",
    b"seed\0",
  ],
)
def test_a_digest_tells_what_differs(other):
  arrays = [np.float32([[1.0, 0.0]]), b"seeds", other]
  assert len({*map(chain_lib.digest_of, arrays)}) == 3


def test_a_large_array_is_digested_in_parts():
  array = np.arange(3_000_000, dtype=np.float32)
  digest = chain_lib.digest_of(array)
  # The memory of this one has gaps.
  assert chain_lib.digest_of(np.repeat(array, 2)[::2]) == digest
  array[-1] += 1
  assert chain_lib.digest_of(array) != digest


def test_a_file_that_others_could_read_is_made_private(tmp_path):
  path = tmp_path / chain_lib.NAME
  path.touch(mode=0o644)
  chains.write(tmp_path, chains.PLANNED, [1, 2])
  assert stat.S_IMODE(path.stat().st_mode) == 0o600
  found = chain_lib.Chain(tmp_path)
  assert chains.runs_of_rounds(found.ledger) == [1, 2]
  assert found.planned == chains.PLANNED


def test_a_class_that_is_not_found_is_no_damage(tmp_path):
  chains.write(tmp_path, chains.PLANNED, [1])
  path = tmp_path / chain_lib.NAME
  name = chains.PLANNED.participation.name
  path.write_text(path.read_text().replace(f'"{name}"', '"nowhere:Mine"'))
  with pytest.raises(errors.DataError, match="nowhere:Mine must be a module"):
    chain_lib.Chain(tmp_path)


def test_what_goes_along_with_a_model_tells_nothing_of_the_lines(tmp_path):
  """The lines of two equal runs have different digests."""
  heads = set()
  for name in ("a", "b"):
    os.mkdir(tmp_path / name)
    chains.write(tmp_path / name, chains.PLANNED, [1])
    heads.add(chain_lib.Chain(tmp_path / name).head)
  assert len(heads) == 2


@pytest.mark.parametrize(
  ("number", "participants"), [(0, "them"), (3, "them"), (1, "others")]
)
def test_rounds_have_an_order_and_their_users(tmp_path, number, participants):
  chain = chains.begin(tmp_path, chains.PLANNED)
  chain.record_round(1, "them", np.zeros(1))
  with pytest.raises((ValueError, IndexError)):
    chain.record_round(number, participants, np.ones(1))
  with pytest.raises(errors.FieldError, match="line 3 of"):
    chain_lib.Chain(tmp_path)
