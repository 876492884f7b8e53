"""A round in Flower: `flower BACKBONE CLIENTS STEPS BATCH_SIZE`.

Beutel et al., "Flower: A Friendly Federated Learning Research Framework", 2020;
version 1.41.0, whose simulation runs clients as actors of Ray, one a core. An
environment of its own with `torch` and `flwr[simulation]` runs it. Clients
train the layers of `torch_models` on as many images in as many steps, and clip;
the server adds up what they send, adds noise and takes a step with momentum.

Answers as in `worker`.
"""

import os

# One thread for each process; nothing is told to anyone about its use.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import sys

from flwr import app as flower
from flwr import clientapp
from flwr import serverapp
from flwr import simulation
from flwr.clientapp import mod
from flwr.serverapp import strategy as strategies
import torch

from benchmarks import torch_models
from benchmarks import worker


def _create_model(backbone: str) -> torch.nn.Module:
  # Takes three quarters of the time of the default layout.
  layers = torch_models.create_layers(backbone)
  return layers.to(memory_format=torch.channels_last)


def _create_client(
  backbone: str, steps: int, batch_size: int
) -> clientapp.ClientApp:
  """Creates what trains a client."""
  app = clientapp.ClientApp(mods=[mod.fixedclipping_mod])

  @app.train()
  def train(message, context):
    torch.set_num_threads(1)
    model = _create_model(backbone)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    images, labels = map(
      torch.from_numpy,
      torch_models.make_examples(
        context.node_config["partition-id"], steps * batch_size
      ),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for start in range(0, len(images), batch_size):
      rows = slice(start, start + batch_size)
      optimizer.zero_grad()
      logits = model(images[rows].float() / 255.0)
      torch.nn.functional.cross_entropy(logits, labels[rows]).backward()
      optimizer.step()
    content = flower.RecordDict(
      {
        "arrays": flower.ArrayRecord(model.state_dict()),
        "metrics": flower.MetricRecord({"num-examples": len(images)}),
      }
    )
    return flower.Message(content=content, reply_to=message)

  return app


def main(backbone: str, num_clients: int, steps: int, batch_size: int) -> None:
  """Trains until the input ends."""
  server = serverapp.ServerApp()

  @server.main()
  def train(grid, context):
    strategy = strategies.DifferentialPrivacyClientSideFixedClipping(
      strategies.FedAvgM(
        fraction_evaluate=0.0, server_learning_rate=1.0, server_momentum=0.9
      ),
      noise_multiplier=0.1,
      clipping_norm=1.0,
      num_sampled_clients=num_clients,
    )

    def create_round():
      arrays = flower.ArrayRecord(_create_model(backbone).state_dict())

      def run_round(round_num):
        nonlocal arrays
        found = strategy.start(grid, initial_arrays=arrays, num_rounds=1)
        arrays = found.arrays

      return run_round

    worker.answer(create_round)

  simulation.run_simulation(
    server,
    _create_client(backbone, steps, batch_size),
    num_supernodes=num_clients,
    backend_config={
      # Not one that happens to run on this machine.
      "init_args": {
        "address": "local",
        "num_cpus": len(os.sched_getaffinity(0)),
      },
      "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    },
  )


if __name__ == "__main__":
  main(sys.argv[1], *map(int, sys.argv[2:]))
