"""Settings for photos that nobody here has seen, by rules that only count.

The rules look at how many users and classes there are and whether each user has
one class, never at an image, nor at what an earlier run has found. What a user
of the program gives wins, and what follows from it follows. docs/photos.md has
the runs that the constants are from.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

from tff_fedemb.aggregators import registry as aggregators
from tff_fedemb.models import starts
from tff_fedemb.run import task as task_lib

# By whether a user has one class. One alone has nothing to tell apart then, and
# few classes to tell apart otherwise.
_USERS_PER_CLIENT = {True: 16, False: 4}
_CLIENTS_PER_ROUND = {True: 4, False: 8}
_MAX_CLIENTS_PER_ROUND = 2048
# Few rounds of many: the noise multiplier grows with the cohort, and a user
# takes part ten times. Twice the rounds of half the users would take as long
# and cost several times the epsilon.
_SHARE_OF_USERS = 4
_ROUNDS = 40
# Noise multiplier / virtual clients of a round: what LeNet learns with.
_NOISE_ON_MEAN = 0.00125
_CLIP_NORM = 0.3
# Learning rate of clients, and of their heads in multiples of it.
_LEARNING_RATES = {"lenet": (0.05, 10.0)}
_OTHER_LEARNING_RATES = (0.02, 5.0)
_POOLED_ROUNDS = 20
# Fewer users cannot hide one of them at any noise that a model learns with, and
# teach a network too little: training starts from the weights that are shipped,
# and a few rounds are enough.
_FEW_USERS = 200
_ROUNDS_FROM_START = 20
_RATES_FROM_START = (0.005, 20.0)
_MAX_POOLED_USERS = 256


@dataclasses.dataclass(frozen=True)
class Choice:
  """A value of a flag.

  Attributes:
    value: The value.
    reason: Why that one, in a phrase.
  """

  value: Any
  reason: str


def choose(
  task: task_lib.Task, given: Mapping[str, Any], *, federated: bool
) -> dict[str, Choice]:
  """Chooses settings.

  Args:
    task: What to train on; of it are looked at the number of users, whether
      they have one class each, the shape of an image, and the task's own
      choice of a backbone.
    given: Values that a user of the program has given, by flag.
    federated: Whether for federated training, or for pooled data.

  Returns:
    By flag what is chosen, in the order in which one follows from another;
    nothing that was given.
  """
  chosen = _choose_backbone(task, given)
  is_started = "pretrained_backbone" in chosen
  if federated:
    rounds = _ROUNDS_FROM_START if is_started else _ROUNDS
    chosen |= _choose_cohort(task, given, rounds)
  else:
    users = min(_MAX_POOLED_USERS, len(task.train_users))
    chosen["users_per_round"] = Choice(
      users, f"of {len(task.train_users):,} users"
    )
    chosen["rounds"] = Choice(_POOLED_ROUNDS, "one pass over those users each")
  name = given.get("backbone") or chosen["backbone"].value
  rate, scale = _LEARNING_RATES.get(name, _OTHER_LEARNING_RATES)
  if is_started:
    rate, scale = _RATES_FROM_START
  whose = "from these weights" if is_started else f"of {name}"
  chosen["client_learning_rate"] = Choice(rate, whose)
  chosen["head_lr_scale"] = (
    Choice(scale, "a client's head is new in every round")
    if federated
    else Choice(1.0, "the head stays")
  )
  chosen["batch_size"] = Choice(16, "users have few images")
  return {name: c for name, c in chosen.items() if name not in given}


def _choose_backbone(
  task: task_lib.Task, given: Mapping[str, Any]
) -> dict[str, Choice]:
  """A backbone, and for few users of small images the weights to start from."""
  height, width, channels = task.image_shape
  users = len(task.train_users)
  if (
    users < _FEW_USERS
    and (height, width) == (starts.SIDE, starts.SIDE)
    and channels in (1, 3)
    and not {"backbone", "pretrained_backbone", "embedding_dim"} & set(given)
  ):
    few = f"{users:,} users teach too little, and cannot hide one of them"
    return {
      "backbone": Choice(starts.BACKBONE, "of the weights below"),
      "pretrained_backbone": Choice(
        str(starts.PATH), f"{few}: made-up patterns come first"
      ),
    }
  why = f"for images of {height}x{width} pixels"
  return {"backbone": Choice(task.default_backbone, why)}


def _choose_cohort(
  task: task_lib.Task, given: Mapping[str, Any], rounds: int
) -> dict[str, Choice]:
  num_users, alone = len(task.train_users), task.one_class_per_user
  fewest = 2 if alone else 1
  of_client = max(min(_USERS_PER_CLIENT[alone], num_users // 4), fewest)
  why_users = (
    "each user has one class, and a client needs several"
    if alone
    else "users have several classes each"
  )
  per_client = given.get("users_per_client", of_client)
  clients = max(
    _CLIENTS_PER_ROUND[alone], num_users // (_SHARE_OF_USERS * per_client)
  )
  clients = min(
    clients, _MAX_CLIENTS_PER_ROUND, max(num_users // per_client, 1)
  )
  num_clients = given.get("clients_per_round", clients)
  users = num_clients * per_client
  chosen = {
    "users_per_client": Choice(of_client, why_users),
    "clients_per_round": Choice(
      clients, f"so that a round has {users:,} of {num_users:,} users"
    ),
    "rounds": Choice(
      rounds,
      f"a user is in {given.get('rounds', rounds) * users / num_users:.3g} of"
      " them on average",
    ),
    "clip_norm": Choice(_CLIP_NORM, "about half of an update of LeNet"),
  }
  name = given.get("aggregator", aggregators.DEFAULT)
  mechanism = aggregators.AGGREGATORS[name]
  if mechanism.adds_noise and mechanism.strategy_class is None:
    chosen["noise_multiplier"] = Choice(
      float(f"{_NOISE_ON_MEAN * num_clients:.2g}"),
      f"{_NOISE_ON_MEAN:g} for each virtual client of a round, with which"
      " LeNet learns",
    )
  return chosen


def tell(
  task: task_lib.Task, chosen: Mapping[str, Choice], given: Mapping[str, Any]
) -> str:
  """Says what is chosen, in lines."""
  users = len(task.train_users)
  lines = [
    f"Chosen for {users:,} users, {task.num_train_classes:,} classes, by"
    " counting alone; a flag of yours wins:",
    *(
      f"  --{name}={choice.value}  ({choice.reason})"
      for name, choice in chosen.items()
    ),
  ]
  if users < _FEW_USERS and not {"pretrained_backbone"} & {*chosen, *given}:
    lines.append(
      f"warning: with fewer than {_FEW_USERS} users, training from random"
      " weights ends about where it began. Give pretrained_backbone, or leave"
      f" out backbone, with images of {starts.SIDE} pixels."
    )
  return "\n".join(lines)
