"""How much two rounds differ, for tests."""

import collections


def count(before: list[str], after: list[str]) -> int:
  """Virtual clients of one round that are not in the other, at most."""
  before, after = collections.Counter(before), collections.Counter(after)
  return max((before - after).total(), (after - before).total())
