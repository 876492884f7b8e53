"""Tunings whose trials are a small function in place of training."""

import json

import numpy as np
import pytest

from tests.records import chains
from tff_fedemb import errors
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.accounting import tuning
from tff_fedemb.mechanisms import gaussian
from tff_fedemb.participation import fixed_size
from tff_fedemb.records import model_card
from tff_fedemb.records import run_directory
from tff_fedemb.spec import array_task
from tff_fedemb.spec import spec as spec_lib
from tff_fedemb.training import train
from tff_fedemb.training import tuning as tuning_run

ROUNDS = 5
RATES = (0.1, 0.2, 0.3, 0.4)
PARTICIPATION = fixed_size.FixedSize(1_000, 20, users_per_client=2)
IMAGES = np.zeros([2, 12, 12, 1], np.uint8)
LABELS = np.array([0, 1])
SPEC = spec_lib.RunSpec(
  task=array_task.ArrayTask(IMAGES, LABELS, LABELS, test=(IMAGES, LABELS)),
  participation=fixed_size.FixedSize(users_per_round=2, users_per_client=2),
  mechanism=gaussian.GaussianConfig(noise_multiplier=1.0, clip_norm=0.3),
  rounds=ROUNDS,
  seed=1,
)
# A trial's summary says this of the users whose images it is evaluated on.
OTHERS = {"evaluation_on_training_users": False}
# Server learning rates of trials that do not train like the others: with less
# noise, two rounds until the model diverges, or not at all. No spec takes a
# negative one.
LESS_NOISE, DIVERGES, NEGATIVE, INTERRUPTED = 9, 7, -1, 10
# A rate whose trial diverges before its chain begins.
DIVERGES_AT_ONCE = 11
ERRORS = {
  8: errors.DataError("the disk is full."),
  INTERRUPTED: KeyboardInterrupt(),
  DIVERGES_AT_ONCE: errors.DivergedError("the start is not finite."),
  21: errors.FieldError("data_dir", "be another one", 21),
}


class Tuning:
  """A tuning whose trials leave what training leaves; recall is their rate.

  Attributes:
    path: Its directory.
    calls: Specs and directories of the trials that ran.
  """

  def __init__(self, path, facts=OTHERS):
    self.path, self._facts = path / "tuning", facts
    self.calls = []

  @property
  def rates(self):
    return [spec.server_optimizer.learning_rate for spec, _ in self.calls]

  @property
  def seeds(self):
    return [spec.seed for spec, _ in self.calls]

  def read(self, name):
    return json.loads((self.path / name).read_text())

  def run(
    self,
    rates,
    *num_trials,
    generator=None,
    seed=0,
    field="server_learning_rate",
    **options,
  ):
    """Runs the tuning, with these numbers of trials or a generator of them."""
    numbers = iter(num_trials)
    with pytest.MonkeyPatch.context() as patched:
      patched.setattr(train, "train", self.train)
      if seed is not None:
        patched.setattr(tuning_run.secrets, "randbits", lambda bits: seed)
      if generator is None:
        patched.setattr(
          tuning.RepeatAndSelect,
          "draw_num_trials",
          lambda selection, generator: next(numbers),
        )
      return tuning_run.TuningRun(
        tuning_run.TuningConfig(run_dir=self.path, **options),
        SPEC,
        {field: ("values", tuple(rates))},
        generator=generator,
      ).run()

  def train(self, spec, *, run_dir, task, is_trial):
    assert is_trial
    assert len(task.train_users) == 2
    rate = spec.server_optimizer.learning_rate
    self.calls.append((spec, run_dir))
    print(f"a trial with rate {rate}")
    if rate in ERRORS:
      raise ERRORS[rate]
    run_directory.RunDirectory(run_dir, spec.to_json()).close()
    _leave_chain(run_dir, rate)
    if rate == DIVERGES:
      raise errors.DivergedError("the model diverged.")
    _leave_model(run_dir, rate)
    evaluation = {
      "validation": {"recall_at_far": {"0.001": rate}},
      "test": {"recall_at_far": {"0.001": rate / 2}},
    }
    summary = {"evaluation": evaluation, "split": "by alphabet", **self._facts}
    (run_dir / "summary.json").write_text(json.dumps(summary))


def _leave_chain(run_dir, rate):
  if (run_dir / "rounds.jsonl").exists():
    return
  noise = composition.Noise(0.5 if rate == LESS_NOISE else 1.0)
  planned = ledger_lib.Ledger(PARTICIPATION, delta=1e-4)
  rounds = 2 if rate == DIVERGES else ROUNDS
  chains.write(run_dir, planned.with_rounds(noise, ROUNDS), [1] * rounds)


def _leave_model(run_dir, rate):
  saved_model = run_dir / "release/saved_model"
  saved_model.mkdir(exist_ok=True)
  (saved_model / "rate").write_text(str(rate))
  card = model_card.ModelCard(
    image_shape=(2, 2, 1),
    embedding_dim=3,
    privacy={"epsilon": 0.1926, "not_covered": ["the trace"]},
    training={"command": "python -m binaries.run_federated"},
  )
  model_card.write(card, saved_model / model_card.PATH)
