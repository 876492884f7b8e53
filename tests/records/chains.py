"""Writes the chain of a run, for tests."""

import numpy as np

from tff_fedemb.records import chain as chain_lib
from tff_fedemb.report import account


def begin(directory, planned, chain=None):
  """Begins the chain of a run whose settings are in its directory."""
  chain = chain or chain_lib.Chain(directory)
  chain.begin(
    planned,
    files=account.digest_files(directory),
    users="whoever they are",
    code_version={"commit": None, "modified": None},
  )
  return chain


def write(directory, planned, runs, participants=lambda number: ""):
  """Writes the chain of rounds that ran so often each; returns its ledger."""
  chain = begin(directory, planned)
  for number, times in enumerate(runs, 1):
    for run in range(times):
      model = np.array([number, run])
      chain.record_round(number, participants(number), model)
  return chain.ledger


def runs_of_rounds(ledger):
  """How many times each round ran."""
  return [each.times for each in ledger.history for _ in range(each.count)]
