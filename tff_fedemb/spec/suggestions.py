"""Settings for data that nobody here has seen, by rules that only count.

The rules look at the number of users and classes and at whether each user has
one class, never at an image or at the results of an earlier run. Your own
settings win, and others follow from them. docs/photos.md has the runs that the
constants are from.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tff_fedemb import checks
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.algorithms import registry as algorithms
from tff_fedemb.mechanisms import registry as aggregators
from tff_fedemb.models import starts
from tff_fedemb.participation import check_ins
from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.spec import deployment
from tff_fedemb.spec import spec as spec_lib
from tff_fedemb.spec import task as task_lib

# Keyed by whether a user has one class. A client of one such user has nothing
# to tell apart, and other users have few classes each.
_USERS_PER_CLIENT = {True: 16, False: 4}
_CLIENTS_PER_ROUND = {True: 4, False: 8}
_MAX_CLIENTS_PER_ROUND = 2048
# Few, large rounds: the noise multiplier grows with the cohort, and a user
# takes part ten times. Twice the rounds with half the users would take as long
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
# With fewer users, no noise that a model learns with can hide one of them, and
# they teach a network too little. So training starts from the weights that come
# along, and a few rounds are enough.
_FEW_USERS = 200
_ROUNDS_FROM_START = 10
_RATES_FROM_START = (0.005, 20.0)
_START_SHARE = 0.5
_MAX_POOLED_USERS = 256


class Choice(NamedTuple):
  """A value of a flag, and the reason for it in a phrase.

  Attributes:
    value: The value, of the flag's type.
    reason: Reason that a program prints beside the value.
  """

  value: Any
  reason: str


# Settles a flag, given its name, a value and a reason; returns the value that
# counts, which is the user's own if one was given.
_Settle = Callable[[str, Any, str], Any]


def choose(
  task: task_lib.Task, given: Mapping[str, Any], *, federated: bool
) -> dict[str, Choice]:
  """Chooses settings by counting users and classes.

  Users with one class each are merged, 16 to a virtual client, others 4. With
  fewer than 200 users, training starts from weights that come along.

  Args:
    task: The task. The choice depends on its number of users, whether they have
      one class each, the shape of an image, and its own choice of a backbone.
    given: Values that a user of the program has given, by flag.
    federated: Whether for federated training, or for pooled data.

  Returns:
    Choices by flag, in the order in which one follows from another; flags that
    were given are not among them.
  """
  chosen: dict[str, Choice] = {}

  def settle(name: str, value: Any, reason: str) -> Any:
    if name in given:
      return given[name]
    chosen[name] = Choice(value, reason)
    return value

  users = len(task.train_users)
  _, _, channels = task.image_shape
  of_network = {"backbone", "pretrained_backbone", "embedding_dim"}
  is_started = users < _FEW_USERS and channels in (1, 3)
  is_started = is_started and of_network.isdisjoint(given)
  rate, scale, whose = _choose_network(task, settle, is_started=is_started)
  if federated:
    rounds = _ROUNDS_FROM_START if is_started else _ROUNDS
    _choose_cohort(task, given, rounds, settle)
    if is_started:
      why_share = (
        "few images can also make it worse, and half of a step less so"
      )
      settle("export_start_share", _START_SHARE, why_share)
    why_scale = "a client's head is new in every round"
  else:
    pooled = min(_MAX_POOLED_USERS, users)
    settle("users_per_round", pooled, f"of {users:,} users")
    settle("rounds", _POOLED_ROUNDS, "one pass over those users each")
    scale, why_scale = 1.0, "the head stays"
  settle("client_learning_rate", rate, whose)
  settle("head_lr_scale", scale, why_scale)
  settle("batch_size", 16, "users have few images")
  return chosen


def _choose_network(
  task: task_lib.Task, settle: _Settle, *, is_started: bool
) -> tuple[float, float, str]:
  """Chooses the backbone; returns learning rates for it, and whose they are.

  Args:
    task: The task.
    settle: Takes a flag, a value and a reason; returns the value that counts.
    is_started: Whether training starts from the weights that come along.

  Returns:
    Learning rate of clients, that of the head in multiples of it, and a phrase
    that says which network the rates are for.
  """
  if not is_started:
    height, width, _ = task.image_shape
    why = f"for images of {height}x{width} pixels"
    name = settle("backbone", task.default_backbone, why)
    rates = _LEARNING_RATES.get(name, _OTHER_LEARNING_RATES)
    return *rates, f"of {name}"
  settle("backbone", starts.BACKBONE, "of the weights below")
  users = f"{len(task.train_users):,} users"
  why = (
    f"{users} teach too little, and cannot hide one of them: it starts from"
    " weights trained on synthetic patterns"
  )
  settle("pretrained_backbone", str(starts.PATH), why)
  return *_RATES_FROM_START, "from these weights"


def _choose_cohort(
  task: task_lib.Task, given: Mapping[str, Any], rounds: int, settle: _Settle
) -> None:
  """Chooses the users of a client, clients, rounds, clip norm and noise.

  The noise multiplier grows with the number of virtual clients, so that the
  noise on the mean stays what LeNet learns with. It is chosen only for
  independent noise.

  Args:
    task: The task.
    given: Values that the user has given, by flag.
    rounds: Number of rounds to choose.
    settle: As for `_choose_network`.
  """
  num_users, alone = len(task.train_users), task.one_class_per_user
  fewest, why_users = 1, "users have several classes each"
  if alone:
    fewest, why_users = 2, "each user has one class, and a client needs several"
  of_client = max(min(_USERS_PER_CLIENT[alone], num_users // 4), fewest)
  if given.get("deployment") is not None:
    of_client, why_users = 1, "a device reports by itself"
  per_client = settle("users_per_client", of_client, why_users)
  all_clients = max(num_users // per_client, 1)
  share_of_users = num_users // (_SHARE_OF_USERS * per_client)
  clients = max(_CLIENTS_PER_ROUND[alone], share_of_users)
  clients = min(clients, _MAX_CLIENTS_PER_ROUND, all_clients)
  users = given.get("clients_per_round", clients) * per_client
  why_clients = f"so that a round has {users:,} of {num_users:,} users"
  clients = settle("clients_per_round", clients, why_clients)
  share = given.get("rounds", rounds) * users / num_users
  settle("rounds", rounds, f"a user is in {share:.3g} of them on average")
  settle("clip_norm", _CLIP_NORM, "about half of an update of LeNet")
  name = given.get("aggregator", aggregators.DEFAULT)
  mechanism = aggregators.AGGREGATORS[name]
  if mechanism.adds_noise and mechanism.strategy_class is None:
    noise = float(f"{_NOISE_ON_MEAN * clients:.2g}")
    settle(
      "noise_multiplier",
      noise,
      f"{_NOISE_ON_MEAN:g} for each virtual client of a round, with which"
      " LeNet learns",
    )


def apply(
  spec: spec_lib.RunSpec, values: Mapping[str, Any]
) -> spec_lib.RunSpec:
  """Returns a spec with other settings.

  Args:
    spec: The spec.
    values: Values by the names of flags, which are those of the fields but for
      a few, such as `client_learning_rate`, and for `clients_per_round`.

  Returns:
    The new spec. Users of a round are `clients_per_round` times
    `users_per_client`, each from `values` or else from the spec.

  Raises:
    errors.FieldError: If there is no such setting, or a value is out of its
      range.
  """
  others, claim = dict(values), spec.participation
  others.pop("clients_per_round", None)
  changes: dict[tuple[str, ...], Any] = {}
  if claim is not None:
    users = _count_users(claim, values)
    changes["participation", "users_per_round"] = users
  # Set classes first: only then are their fields known.
  registered = {x.flag: x.name for x in config.specs(type(spec)) if x.registry}
  classes = {registered[x]: others.pop(x) for x in registered if x in others}
  spec = config.replace(spec, {(name,): x for name, x in classes.items()})
  places: dict[str, tuple[str, ...]] = {}
  for names, field, _ in config.walk(spec):
    # A part may have a copy of a setting, which follows from the first one.
    places.setdefault(field.flag, names)
  for name, value in others.items():
    if name not in places:
      raise errors.FieldError(name, "be the name of a setting", repr(value))
    changes[places[name]] = value
  return config.replace(spec, changes)


def _count_users(
  claim: participation_lib.Participation, values: Mapping[str, Any]
) -> int:
  """Users of a round, by settings that win over those of a participation.

  Args:
    claim: The participation.
    values: Settings by the names of flags.

  Returns:
    `clients_per_round` times `users_per_client`.

  Raises:
    errors.FieldError: If `users_per_round` is among the settings, or a number
      is no positive integer.
  """
  if "users_per_round" in values:
    raise errors.FieldError(
      "users_per_round",
      "not be given: it is clients_per_round x users_per_client",
      repr(values["users_per_round"]),
    )
  users = 1
  for name in ("clients_per_round", "users_per_client"):
    number = values.get(name, getattr(claim, name))
    users *= checks.check_integer(name, number, minimum=1)
  return users


def _begin(
  task: task_lib.TaskSource, given: Mapping[str, Any]
) -> spec_lib.RunSpec:
  """A spec that the given settings can be put into, one after the other.

  Args:
    task: The task.
    given: Settings by the names of flags; only algorithm and deployment count.

  Returns:
    A spec of pooled training, of check-ins under a deployment, or else of
    cohorts of a fixed size, with default values.
  """
  name, deployed = given.get("algorithm", ""), given.get("deployment")
  if name in algorithms.ALGORITHMS:
    algorithm = algorithms.ALGORITHMS[name]
    if not algorithm.is_private:
      return spec_lib.RunSpec(task=task, algorithm=algorithm())
  drawn = fixed_size.FixedSize if deployed is None else check_ins.CheckIns
  return spec_lib.RunSpec(
    task=task,
    participation=drawn(users_per_round=1),
    mechanism=aggregators.AGGREGATORS[aggregators.DEFAULT](),
    deployment=deployment.DeploymentConfig(deployment=deployed),
  )


def suggest(task: task_lib.TaskSource, **given: Any) -> spec_lib.RunSpec:
  """Suggests the settings of a run, as programs do for photos.

  The rules count users and classes, and look at no image. They know no more of
  your data than that: a first run, to improve on.

  Privacy:
    The number of users, and whether each of them has one class alone, decide
    the choice. Both are taken as public: no epsilon covers them.

  Args:
    task: Users with images, and held-out ones.
    **given: Settings of your own, by the names of flags: they win, and others
      follow from them.

  Returns:
    A spec for `fe.plan` and `fe.train`.

  Raises:
    errors.FieldError: If there is no such setting, a value is out of its range,
      or the task has no images.

  Examples:
    >>> images = np.zeros([24, 8, 8, 1], np.uint8)
    >>> labels, users = np.arange(24) % 4, np.arange(24) // 3
    >>> task = fe.ArrayTask(images, labels, users, test=(images, labels))
    >>> spec = fe.suggest(task, rounds=5)
    >>> spec.rounds, spec.participation.users_per_client
    (5, 2)
  """
  for name in ("algorithm", "participation", "aggregator"):
    words = "a name; give its fields by their own names"
    checks.check_type(name, given.get(name, ""), str, words)
  spec, created = apply(_begin(task, given), given), task.create()
  if not created.has_images:
    raise errors.FieldError(
      "task",
      "have images, for which the rules are",
      f"examples of shape {list(created.image_shape)}",
    )
  chosen = choose(created, given, federated=spec.algorithm.is_private)
  return apply(spec, {name: choice.value for name, choice in chosen.items()})


def tell(
  task: task_lib.Task, chosen: Mapping[str, Choice], given: Mapping[str, Any]
) -> str:
  """Says in words which settings were chosen.

  Args:
    task: The task.
    chosen: Choices by flag, as `choose` returns them.
    given: As for `choose`.

  Returns:
    A line for each choice, and a warning if training starts from nothing.
  """
  users = len(task.train_users)
  lines = [
    f"Chosen for {users:,} users, {task.num_train_classes:,} classes, by"
    " counting alone; a flag of yours wins:"
  ]
  for name, choice in chosen.items():
    lines.append(f"  --{name}={choice.value}  ({choice.reason})")
  if users < _FEW_USERS and not {"pretrained_backbone"} & {*chosen, *given}:
    lines.append(
      f"warning: with fewer than {_FEW_USERS} users, training from random"
      " weights ends about where it began. Give pretrained_backbone, or leave"
      " out backbone and embedding_dim."
    )
  return "\n".join(lines)
