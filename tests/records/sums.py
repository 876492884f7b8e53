"""A runtime that does arithmetic in place of training."""

import collections

import numpy as np
import tensorflow_federated as tff

from tff_fedemb.runtime import base


class Sums(base.Runtime):
  """Its state depends on every client id of every round, in order."""

  def __init__(
    self, fail_in_round=None, error=RuntimeError, skipped=None, rejected=None
  ):
    self._fail_in_round = fail_in_round
    self._error = error
    self._skipped_by_round = skipped or {}
    self._skipped = ()
    self._rejected_by_round = rejected or {}

  @property
  def skipped_clients(self):
    return self._skipped

  def initialize(self, process):
    del process
    return (np.float64(1.0), np.int32(0))

  def next(self, state, client_ids):
    value, round_num = state
    if round_num == self._fail_in_round:
      raise self._error("stop")
    self._skipped = self._skipped_by_round.get(int(round_num), ())
    for client_id in client_ids:
      value = (value * 1.7 + sum(map(int, client_id.split("\n")))) % 1000.0
    rejected = self._rejected_by_round.get(int(round_num), 0)
    report = collections.OrderedDict(
      client_work=collections.OrderedDict(
        loss=np.float32(value), num_rejected_clients=np.int64(rejected)
      )
    )
    return (value, np.int32(round_num + 1)), report

  def structured_state(self, state):
    return tff.learning.templates.LearningAlgorithmState(
      state[0], (), state[1], (), ()
    )

  def load_state(self, structure):
    return (
      np.float64(structure.global_model_weights),
      np.int32(structure.client_work),
    )

  def close(self):
    pass
