"""Writes the chain of a run, for tests."""

import numpy as np

from tff_fedemb.accounting import composition
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.participation import fixed_size
from tff_fedemb.records import chain as chain_lib
from tff_fedemb.report import account

# Three rounds with independent noise.
PLANNED = ledger_lib.Ledger(
  fixed_size.FixedSize(20, 6), delta=1e-3
).with_rounds(composition.Noise(2.0), 3)


def begin(directory, planned, chain=None):
  """Begins the chain of a run in its directory."""
  chain = chain or chain_lib.Chain(directory)
  chain.begin(
    planned,
    files=account.digest_files(directory),
    users="whoever they are",
    code_version={"commit": None, "modified": None},
  )
  return chain


def write(directory, planned, runs, participants=lambda number: ""):
  """Writes a chain, given how many times each round ran; returns its ledger."""
  chain = begin(directory, planned)
  for number, times in enumerate(runs, 1):
    for run in range(times):
      model = np.array([number, run])
      chain.record_round(number, participants(number), model)
  return chain.ledger


def runs_of_rounds(ledger):
  """Returns how many times each round of a ledger ran."""
  return [each.times for each in ledger.history for _ in range(each.count)]
