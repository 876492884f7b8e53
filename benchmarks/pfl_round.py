"""A round in pfl-research.

`pfl_round CASE`, with the fields of `cases.Case` as JSON.

Granqvist et al., "pfl-research: simulation framework for accelerating research
in Private Federated Learning", 2024; version 0.6.0. An environment of its own
with `torch` and `pfl` runs it by `torchrun`, a process per core; it imports
nothing of this project. It trains the layers of `tff_fedemb.models.blocks` on
as many images in as many steps, and clips and noises the same way; the head is
part of the model, which is what the framework offers. Pooling comes before
ReLU, as in our models: the same function in less time. Images are made from
the user's number and not read, also where ours are.

Answers as `round_process` does: rank 0 says "ready", then answers each line
with "done".
"""

import json
import os

# One thread for each process, also in what the imports below start.
os.environ["OMP_NUM_THREADS"] = "1"

import sys
import types

import numpy as np
from pfl import metrics
from pfl.aggregate import simulate
from pfl.algorithm import base
from pfl.algorithm import federated_averaging
from pfl.callback import base as callback_base
from pfl.data import dataset
from pfl.data import federated_dataset
from pfl.hyperparam import base as hyperparam
from pfl.model import pytorch
from pfl.privacy import gaussian_mechanism
from pfl.privacy import privacy_mechanism
import torch

# Channels and width of the convolutions.
_BACKBONES = {
  "lenet": [(32, 5), (64, 5)],
  "convnet": [(16, 5), (32, 3), (64, 3)],
}
# The network of the framework's own benchmark on CIFAR-10.
_SIMPLE_CNN = "simple_cnn"
_ROUNDS_AT_MOST = 1_000_000


def _create_layers(backbone: str, num_classes: int) -> torch.nn.Sequential:
  """Creates layers from float32 images in [0, 1] to logits."""
  nn = torch.nn
  if backbone == _SIMPLE_CNN:
    return nn.Sequential(
      *(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU()),
      *(nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten()),
      *(nn.Linear(64 * 14 * 14, 128), nn.ReLU(), nn.Dropout(0.5)),
      nn.Linear(128, num_classes),
    )
  layers = [nn.LayerNorm((1, 28, 28), elementwise_affine=False)]
  size, channels = 28, 1
  for filters, width in _BACKBONES[backbone]:
    layers += [
      nn.Conv2d(channels, filters, width, padding=width // 2),
      nn.MaxPool2d(2),
      nn.ReLU(),
    ]
    size, channels = size // 2, filters
  head = (nn.Linear(size * size * channels, 128), nn.Linear(128, num_classes))
  return nn.Sequential(*layers, nn.Flatten(), *head)


class _Model(torch.nn.Module):
  """The model in the form that pfl expects."""

  def __init__(self, backbone: str, num_classes: int):
    super().__init__()
    self.layers = _create_layers(backbone, num_classes)

  def forward(self, images):
    return self.layers(images.float() / 255.0)

  def loss(self, images, labels):
    self.train()
    return torch.nn.functional.cross_entropy(self(images), labels.long())

  def metrics(self, images, labels):
    # Asked for in round 0 alone, which warms up.
    loss = self.loss(images, labels).item()
    return {"loss": metrics.Weighted(loss * len(labels), len(labels))}


class _Pace(callback_base.TrainingProcessCallback):
  """Waits for a line before each round and answers after it."""

  def __init__(self):
    # pfl prints its metrics; the answers must stay alone on the pipe.
    self._answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    self._is_first_rank = int(os.environ.get("RANK", "0")) == 0

  def _answer_and_wait(self, answer: str) -> bool:
    """Returns whether the input has ended, on every rank."""
    has_ended = torch.zeros(1)
    if self._is_first_rank:
      print(answer, file=self._answers, flush=True)
      has_ended += not sys.stdin.readline()
    torch.distributed.broadcast(has_ended, 0)
    return bool(has_ended.item())

  def on_train_begin(self, *, model):
    self._answer_and_wait("ready")
    return metrics.Metrics()

  def after_central_iteration(
    self, aggregate_metrics, model, *, central_iteration
  ):
    return self._answer_and_wait("done"), metrics.Metrics()


def main(case: types.SimpleNamespace) -> None:
  """Trains on a case until the input ends."""
  torch.set_num_threads(1)
  num_users = 20 * case.num_clients

  def make_dataset(user_id):
    random = np.random.default_rng(int(user_id))
    size = case.steps * case.batch_size
    height, width, channels = case.image_shape
    images = random.integers(0, 256, (size, channels, height, width), np.uint8)
    labels = random.integers(0, case.num_classes, size)
    return dataset.Dataset(raw_data=(images, labels), user_id=user_id)

  next_user = 0

  def sample_user():
    nonlocal next_user
    next_user = (next_user + 1) % num_users
    return str(next_user)

  users = federated_dataset.FederatedDataset(make_dataset, sample_user)
  # Takes three quarters of the time of the default layout.
  network = _Model(case.backbone, case.num_classes)
  network = network.to(memory_format=torch.channels_last)
  model = pytorch.PyTorchModel(
    network,
    local_optimizer_create=torch.optim.SGD,
    central_optimizer=torch.optim.SGD(
      network.parameters(), lr=1.0, momentum=0.9
    ),
  )
  noise = privacy_mechanism.CentrallyAppliedPrivacyMechanism(
    gaussian_mechanism.GaussianMechanism(1.0, 0.1)
  )
  backend = simulate.SimulatedBackend(
    training_data=users,
    val_data=users,
    postprocessors=[] if case.aggregator == "none" else [noise],
  )
  federated_averaging.FederatedAveraging().run(
    base.NNAlgorithmParams(
      central_num_iterations=_ROUNDS_AT_MOST,
      evaluation_frequency=_ROUNDS_AT_MOST,
      train_cohort_size=case.num_clients,
      val_cohort_size=0,
    ),
    backend,
    model,
    model_train_params=hyperparam.NNTrainHyperParams(
      local_num_epochs=1,
      local_learning_rate=case.learning_rate,
      local_batch_size=case.batch_size,
    ),
    model_eval_params=hyperparam.NNEvalHyperParams(
      local_batch_size=case.batch_size
    ),
    callbacks=[_Pace()],
  )


if __name__ == "__main__":
  main(types.SimpleNamespace(**json.loads(sys.argv[1])))
