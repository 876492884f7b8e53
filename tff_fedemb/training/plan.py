"""Plan of a run: its time, memory and cost, told before there is one.

A plan counts users and images but looks at no image: it measures time and
memory of a round on images that are made up.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping
import dataclasses
import functools
import math
import time
from typing import Any

from etils import epy
import numpy as np
from scipy import optimize
import tqdm

from tff_fedemb import checks
from tff_fedemb import progress
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import epsilon as epsilon_lib
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.accounting import report
from tff_fedemb.data import bad_examples
from tff_fedemb.data import pipelines
from tff_fedemb.data import population
from tff_fedemb.planning import planning
from tff_fedemb.report import words
from tff_fedemb.spec import deployment as deployment_lib
from tff_fedemb.spec import experiment as experiment_lib
from tff_fedemb.spec import run_cost
from tff_fedemb.spec import spec as spec_lib
from tff_fedemb.spec import task as task_lib

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_fedemb.evaluation import embedding
  from tff_fedemb.models import pretrained
  from tff_fedemb.report import training_report
  from tff_fedemb.runtime import base

_READING_BATCH = 64
# Virtual clients that are measured, for each core.
_CLIENTS_PER_CORE = 2
# Noise multipliers that a plan shows beside the run's own.
_NOISE_MULTIPLIERS = (0.25, 1.0, 4.0)
_TARGET_EPSILON = 9.0
_KNOWN_NOISE = "Anyone can draw noise of a known seed again: it protects nobody"
# An epsilon above this protects nobody.
_NO_PRIVACY = 100.0


@dataclasses.dataclass(frozen=True)
class Plan:
  """Cost of a run, told before it trains.

  Printing it shows `lines`.

  Attributes:
    ledger: The account of its rounds: that which the run will have, if the
      model was at hand. Without one (`measure` is false, and the task knows its
      number of users), the noise is taken for a Gaussian: the run then costs
      what the arithmetic of its noise leaves besides.
    noise_on_mean: Noise multiplier / virtual clients of a round.
    lines: All that is told, in lines.
  """

  ledger: ledger_lib.Ledger
  noise_on_mean: float
  lines: tuple[str, ...]

  @functools.cached_property
  def epsilon(self) -> float:
    """Epsilon of the rounds for one user, at `delta`.

    By the tightest accountant that is valid; infinity without noise. It is
    computed on first use, which takes seconds by PLD.
    """
    return self.ledger.tightest_epsilon()

  @property
  def delta(self) -> float:
    """Delta of this epsilon."""
    return self.ledger.delta

  def __str__(self) -> str:
    return "\n".join(progress.wrap(self.lines))


def plan(
  spec: spec_lib.RunSpec,
  *,
  measure: bool = True,
  task: task_lib.Task | None = None,
) -> Plan:
  """Tells what a run would take and cost; trains and writes nothing.

  Args:
    spec: The run.
    measure: Whether time and memory of a round are measured, on images that are
      made up. If not, and if the task knows its number of users, no data are
      read and TensorFlow is not needed.
    task: The task that `spec.task` creates, if it is at hand.

  Returns:
    The plan; `print` shows all of it.

  Raises:
    errors.FieldError: If the spec or its pretrained backbone does not fit the
      data, or too little of its privacy budget is left.
    errors.DataError: If the data cannot be used.

  Examples:
    >>> images = np.zeros([24, 8, 8, 1], np.uint8)
    >>> labels, users = np.arange(24) % 4, np.arange(24) // 3
    >>> task = fe.ArrayTask(images, labels, users, test=(images, labels))
    >>> spec = fe.RunSpec(
    ...   task=task,
    ...   participation=fe.Poisson(users_per_round=4),
    ...   mechanism=fe.Gaussian(noise_multiplier=1.0, clip_norm=0.1),
    ...   rounds=2,
    ... )
    >>> round(fe.plan(spec, measure=False).epsilon, 2)
    0.78
  """
  checks.check_not_forked()
  checks.check_type("spec", spec, spec_lib.RunSpec)
  num_users = spec.task.num_train_users
  cost: run_cost.RunCost
  if not measure and task is None and num_users is not None:
    cost = run_cost.resolve_cost(spec, num_users)
    lines = list(_tell_privacy(cost))
  else:
    experiment = experiment_lib.resolve(spec, task or spec.task.create())
    lines = [*_tell_data(experiment.task), "", *_tell_privacy(experiment)]
    if spec.pretrained_backbone is not None:
      # The run would refuse a file that does not fit, so the plan does.
      backbone = experiment.create_backbone()
      pretrained.load_pretrained(backbone, spec.pretrained_backbone)
    if measure:
      lines += ["", *_tell_round(experiment)]
    cost = experiment
  cost.check_budget()
  mechanism = cost.mechanism
  return Plan(
    cost.predict_ledger(),
    mechanism.config.noise_multiplier / mechanism.clients_per_round,
    tuple(lines),
  )


def tell_cost(cost: run_cost.RunCost) -> str:
  """Says in a sentence what the rounds of a run would cost.

  Args:
    cost: The run.

  Returns:
    Epsilon and delta; where epsilon is above 100, the number of users that
    would have a single-digit one with the same noise on the mean.
  """
  config = cost.mechanism.config
  if not config.noise_multiplier:
    return "These settings add no noise and protect nobody (epsilon = inf)."
  if not config.secret_noise_multiplier:
    return f"{_KNOWN_NOISE} (epsilon = inf)."
  epsilon = cost.predict_ledger().tightest_epsilon()
  users = f"{cost.participation.num_users:,} users"
  told = f"epsilon = {words.format_epsilon(epsilon)}"
  if epsilon <= _NO_PRIVACY:
    return (
      f"These settings cost {told} at delta = {cost.delta:g} in"
      f" {cost.spec.rounds:,} rounds, for {users}."
    )
  needed, growth = _find_growth(cost)
  takes = _round(growth * cost.participation.num_slots)
  return (
    f"No privacy ({told}): {users} are too few. It takes about {takes} for"
    f" epsilon = {words.format_epsilon(needed)} with the same noise on the mean"
    " update."
  )


def tell_run(
  experiment: experiment_lib.Experiment,
  held_out_images: Mapping[str, embedding.LabelledImages],
) -> Iterator[str]:
  """Tells the data that a run trains and evaluates on, and warns.

  Args:
    experiment: The run, its task at hand.
    held_out_images: Images to evaluate on, by split.

  Yields:
    Lines for the terminal.
  """
  task, claim = experiment.task, experiment.participation
  yield from task.describe()
  for split, images in held_out_images.items():
    if images.num_found is not None:
      yield (
        f"Evaluating on {len(images.labels):,} of {images.num_found:,} {split}"
        " images, drawn at random and always the same;"
        " max_held_out_images=0 takes all."
      )
  if claim != claim.with_secret_schedule():
    yield (
      "WARNING: sampling_seed makes it known who takes part when. Sampling"
      " amplifies nothing in this run; without it the draw is secret."
    )
  if task.bad_examples.lines:
    yield f"left out {bad_examples.summarize(task.bad_examples.lines)}."


def _tell_data(task: task_lib.Task) -> Iterator[str]:
  """Tells users, classes and images of a task.

  Args:
    task: The task; its images are counted, and not decoded.

  Yields:
    Lines on users, classes, warnings and numbers of images.
  """
  yield from task.describe()
  splits = ("train", *task_lib.EVALUATION_SPLITS)
  train, validation, test = map(task.count_images, splits)
  yield (
    f"Images: {train:,} of users who train"
    f" ({train / len(task.train_users):.3g} each); {validation:,} for"
    f" validation, {test:,} for test."
  )


def _epsilon(
  cost: run_cost.RunCost,
  noise_multiplier: float,
  *,
  growth: float = 1.0,
) -> float:
  """Epsilon at another noise, or of a larger population and cohort.

  Args:
    cost: The run.
    noise_multiplier: Noise multiplier in place of its own.
    growth: Users of the larger population and cohort / of the run.

  Returns:
    The smallest epsilon of the valid accountants. In a larger population, its
    delta is at most the default one for so many users.
  """
  own = cost.predict_ledger()
  participation, delta, round_sum = own.participation, own.delta, own.round_sum
  if growth != 1.0:
    # A larger population needs a new, secret draw.
    participation = participation.with_secret_schedule().resized(
      num_users=math.ceil(growth * participation.num_slots),
      users_per_round=math.floor(growth * participation.users_per_round),
    )
    # Keep the noise on the mean if rounds get fewer clients by rounding down.
    cohort = growth * own.participation.clients_per_round
    noise_multiplier *= participation.clients_per_round / cohort
    # Delta must be below 1 / num_users: keep the run's own only if it is small
    # enough for the larger population.
    delta = min(delta, planning.default_delta(participation.num_slots))
  if round_sum is not None:
    factor = noise_multiplier / own.noise.multiplier
    round_sum = round_sum.with_noise_times(factor)
  # Use the run's own accountants; leave out PLD, which takes seconds, for a
  # larger population.
  accountants = epsilon_lib.default_accountants(
    participation, noise_multiplier if growth == 1.0 else 0.0
  )
  ledger = ledger_lib.create_ledger(
    participation,
    composition.Noise(noise_multiplier, cost.mechanism.strategy),
    own.rounds,
    delta=delta,
    accountants=accountants,
    round_sum=round_sum,
  )
  return ledger.tightest_epsilon()


def _tell_privacy(cost: run_cost.RunCost) -> Iterator[str]:
  """Tells epsilon at the run's noise and at other noise levels.

  Args:
    cost: The run; without a task, the size of the model is not known.

  Yields:
    Lines: a table of noise multipliers, and the number of users that a
    single-digit epsilon needs.
  """
  own = cost.mechanism.config.noise_multiplier
  participation = cost.participation
  clients = participation.clients_per_round
  rounds = cost.spec.rounds
  if not cost.spec.algorithm.is_private:
    yield "Training on pooled data adds no noise and protects nobody."
    return
  if own and not cost.mechanism.config.secret_noise_multiplier:
    yield f"{_KNOWN_NOISE} (epsilon = inf)."
    return
  yield (
    f"Privacy of {rounds:,} rounds for {participation.num_users:,} users, at"
    f" delta = {cost.delta:g} ({participation.sampling}):"
  )
  yield f"{'noise multiplier':>18}{'on the mean':>14}{'epsilon':>10}"
  others = [noise for noise in _NOISE_MULTIPLIERS if noise != own]
  levels = [own, *others[-2:]] if own else others
  for noise in sorted(levels):
    mark = "  <- this run" if noise == own else ""
    epsilon = words.format_epsilon(_epsilon(cost, noise))
    yield f"{noise:>18g}{noise / clients:>14.2g}{epsilon:>10}{mark}"
  if own and cost.num_parameters is None and not cost.mechanism.strategy:
    yield (
      "The noise is taken for a Gaussian here: the run adds a little for its"
      " arithmetic, by the size of the model."
    )
  for warning in report.warnings_of_delta(cost.delta, participation.num_slots):
    yield f"warning: {warning}"
  yield from _tell_users_needed(cost)


def _find_growth(cost: run_cost.RunCost) -> tuple[float, float]:
  """Finds how many more users a single-digit epsilon needs at the same noise.

  Users, cohort and noise multiplier grow alike: the share of users in a round
  and the noise on the mean update stay the same.

  Args:
    experiment: The run, with noise.

  Returns:
    Epsilon of the larger population, and its number of users as a multiple of
    this one's; of this one if that is enough.
  """
  own = cost.mechanism.config.noise_multiplier

  def epsilon_at(log_growth: float) -> float:
    growth = math.exp(log_growth)
    return _epsilon(cost, growth * own, growth=growth)

  def excess(log_growth: float) -> float:
    # With so much noise, epsilon may be 0, which has no logarithm.
    return math.log(max(epsilon_at(log_growth), 1e-9) / _TARGET_EPSILON)

  epsilon = epsilon_at(0.0)
  if epsilon <= _TARGET_EPSILON:
    return epsilon, 1.0
  # A noise multiplier of 2 is enough for most runs; otherwise the loop goes on.
  high = math.log(2 / own) if own < 1 else 1.0
  while excess(high) > 0:
    high += 1.0
  found = optimize.brentq(excess, 0.0, high, xtol=0.01) + 0.01
  return epsilon_at(found), math.exp(found)


def _tell_users_needed(cost: run_cost.RunCost) -> Iterator[str]:
  """Tells how many users a single-digit epsilon needs at the same noise.

  Args:
    cost: The run.

  Yields:
    One line.
  """
  own = cost.mechanism.config.noise_multiplier
  participation = cost.participation
  if not own:
    yield "This run adds no noise: no number of users would be protected."
    return
  epsilon, growth = _find_growth(cost)
  if growth == 1.0:
    yield f"That is below {_TARGET_EPSILON + 1:g}, with the users there are."
    return
  yield (
    "The same noise on the mean, with about the same accuracy as is assumed,"
    f" costs epsilon = {words.format_epsilon(epsilon)} with"
    f" {_round(growth * participation.num_slots)} users,"
    f" {_round(growth * participation.users_per_round)} of them a round, and"
    f" noise multiplier {growth * own:.2g}."
  )


def _round(number: float) -> str:
  """A number to two digits.

  Args:
    number: The number, at least 1.

  Returns:
    For example "84,000" for 83,671.
  """
  return f"{int(float(f'{number:.1e}')):,}"


def _make_up(task: task_lib.Task, images_per_user: int) -> task_lib.Task:
  """Returns the task with copies of one made-up image for every user.

  Labels differ as in the task: a user has one class, or several. So a round
  takes as long as one on such data, without reading files.

  Args:
    task: The task.
    images_per_user: Number of images of each user, at least 1.
  """
  noise = np.random.default_rng(0).integers(0, 256, task.image_shape)
  image = noise.astype(pipelines.dtype_of(task.image_shape))
  if task.decode_images is not None:
    image = tf.io.encode_jpeg(image).numpy()

  def make_up(client_id: tf.Tensor, numbers: tf.Tensor) -> Mapping[str, Any]:
    images = tf.repeat(tf.constant(image)[tf.newaxis], tf.size(numbers), axis=0)
    users = numbers // images_per_user
    labels = users if task.one_class_per_user else numbers
    first = tf.strings.to_hash_bucket_fast(client_id, task.num_train_classes)
    return collections.OrderedDict(
      x=images, y=(first + labels) % task.num_train_classes
    )

  def create_client_dataset(client_id: tf.Tensor) -> tf.data.Dataset:
    users = tf.strings.split(client_id, population.SEPARATOR)
    number = tf.size(users, tf.int64) * images_per_user
    numbers = tf.data.Dataset.range(number).batch(_READING_BATCH)
    return numbers.map(functools.partial(make_up, client_id))

  return dataclasses.replace(task, create_client_dataset=create_client_dataset)


def _measure_round(
  experiment: experiment_lib.Experiment,
  process: tff.learning.templates.LearningProcess,
) -> tuple[float, int]:
  """Seconds of a round, and the number of clients that were measured.

  Two clients for each core are timed after a warm-up, less a round without
  clients. The time of all clients is extrapolated from these.

  Args:
    experiment: The run.
    process: Its process, on made-up images.

  Returns:
    Seconds, and a number of clients.
  """
  users, claim = experiment.task.train_users, experiment.participation
  num_clients, cores = claim.clients_per_round, base.count_cores()
  # Any users will do: their images are made up.
  slots = np.arange(num_clients * claim.users_per_client)
  clients = slots.reshape(num_clients, -1)[: _CLIENTS_PER_CORE * cores]
  measured = users.client_ids(list(clients))
  with experiment.spec.runtime.create() as runtime:
    state = runtime.initialize(process)
    # Warm up on clients of one user each, so that later rounds find all
    # sessions open.
    warm_up = users.client_ids(list(slots[:cores, np.newaxis]))
    state, _ = runtime.next(state, warm_up)
    seconds = []
    for clients_of_round in ([], measured):
      start = time.perf_counter()
      state, _ = runtime.next(state, clients_of_round)
      seconds.append(time.perf_counter() - start)
  server, with_clients = seconds
  per_client = max(with_clients - server, 0.0) / max(len(measured), 1)
  return server + num_clients * per_client, len(measured)


def _tell_round(experiment: experiment_lib.Experiment) -> Iterator[str]:
  """Measures a round on made-up images, and tells its time and memory.

  Args:
    experiment: The run, its task at hand.

  Yields:
    Lines on time and memory, and on the days that a deployment takes.
  """
  task, participation = experiment.task, experiment.participation
  images = task.count_images("train")
  images_per_user = max(round(images / len(task.train_users)), 1)
  made_up = _make_up(task, images_per_user)
  process = dataclasses.replace(experiment, task=made_up).build_process()
  seconds, num_measured = _measure_round(experiment, process)
  memory = training_report.peak_memory_bytes()
  size = "x".join(map(str, task.image_shape))
  rounds = experiment.spec.rounds
  yield (
    f"A round of {participation.clients_per_round:,} virtual clients with"
    f" {participation.users_per_client} users of {images_per_user} images each"
    f" ({size}), measured on {num_measured} of them with images made up:"
  )
  all_rounds = tqdm.tqdm.format_interval(rounds * seconds)
  yield (
    f"  time    {seconds:.3g} s; {all_rounds} for {rounds:,} rounds, without"
    " reading files and decoding photos larger than that"
  )
  yield f"  memory  {memory / 1e9:.2g} GB, this program at its most"
  if experiment.spec.deployment.deployment is not None:
    yield deployment_lib.tell_timetable(
      experiment.create_simulation(process), rounds
    )
