"""Tests of what is told and checked before a run has its first round."""

import os
from unittest import mock

from tasks import task_config
from tff_fedemb.training import opening


def test_paths_that_clients_read_are_named_by_their_fields():
  config = task_config.TaskConfig(data_dir="photos", cache_dir="kept")
  assert opening._find_paths(config) == {
    "data_dir": os.path.abspath("photos"),
    "cache_dir": os.path.abspath("kept"),
  }


def test_only_a_run_with_a_budget_is_charged_to_it():
  experiment = mock.Mock()
  experiment.spec.privacy_budget = None
  with mock.patch.object(opening.budget, "charge") as charge:
    opening.charge(experiment, mock.Mock(), mock.Mock(), mock.Mock())
    charge.assert_not_called()
    experiment.spec.privacy_budget = "budget.json"
    charge.return_value = mock.Mock(spent=1.0, epsilon=2.0, delta=1e-5)
    opening.charge(experiment, mock.Mock(path="run"), mock.Mock(), mock.Mock())
  assert charge.call_args.args[0] == "budget.json"
  assert charge.call_args.kwargs["is_finished"] is False
