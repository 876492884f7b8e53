"""Tests of waiting for TFF's managers."""

import asyncio

import pytest

from tff_fedemb.records import storage


async def _double(number):
  await asyncio.sleep(0)
  if not number:
    raise ValueError("zero")
  return 2 * number


def test_waits_with_and_without_a_running_loop():
  async def program():
    return storage.wait_for(_double(3))

  assert storage.wait_for(_double(2)) == 4
  assert asyncio.run(program()) == 6
  with pytest.raises(ValueError, match="zero"):
    storage.wait_for(_double(0))
