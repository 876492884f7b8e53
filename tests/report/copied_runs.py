"""Runs that share a budget, and whose directories are copied or lost."""

import collections
from collections.abc import Callable
import json
import pathlib
import secrets
import shutil

import dp_accounting
import numpy as np

from tests.accounting import gaussian
from tests.records import chains
from tests.records import sums
from tests.rounds import loops
from tff_fedemb import errors
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.mechanisms import secret_noise
from tff_fedemb.mechanisms import strategy as strategy_lib
from tff_fedemb.mechanisms import tree_strategy
from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import min_separation
from tff_fedemb.planning import budget
from tff_fedemb.records import chain as chain_lib
from tff_fedemb.records import run_directory

ROUNDS = 10
_NUM_USERS, _DELTA, _NOISE = 20, 1e-3, 6.0
_SEPARATION = 4
KINDS = ("independent", "sampled", "correlated")


def _plan(kind: str) -> ledger_lib.Ledger:
  claim = min_separation.MinSeparation(_NUM_USERS, 5)
  strategy = None
  if kind == "sampled":
    claim = fixed_size.FixedSize(_NUM_USERS, 5)
  if kind == "correlated":
    strategy = tree_strategy.TreeStrategy()
  noise = composition.Noise(_NOISE, strategy)
  return ledger_lib.Ledger(claim, delta=_DELTA).with_rounds(noise, ROUNDS)


def cost(kind: str, times: list[int]) -> float:
  """Computes epsilon independently of the budget.

  Correlated noise counts as whole runs, as many as its most frequent round ran.

  Args:
    kind: One of `KINDS`.
    times: How many times each round ran.
  """
  if kind == "sampled":
    accountant = dp_accounting.rdp.RdpAccountant(
      neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE
    )
    for each in filter(None, times):
      # Replacing a user changes one update into another.
      noise = dp_accounting.GaussianDpEvent(_NOISE / 2 / each**0.5)
      accountant.compose(
        dp_accounting.SampledWithoutReplacementDpEvent(_NUM_USERS, 5, noise)
      )
    return accountant.get_epsilon(_DELTA)
  if kind == "independent":
    # A user may be in every fourth round. At worst these ran most often.
    most = sorted(times)[-len(times[::_SEPARATION]) :]
    return gaussian.exact_epsilon([_NOISE] * sum(most), _DELTA)
  sensitivity = tree_strategy.TreeStrategy().sensitivity(
    strategy_lib.Schedule(ROUNDS, _SEPARATION)
  )
  return gaussian.exact_epsilon([_NOISE / sensitivity] * max(times), _DELTA)


class _Noisy(sums.Sums):
  """Adds noise of the operating system, or from a seed in the state."""

  def __init__(self, world, kind, *, during, dies_in, data):
    super().__init__()
    self._world = world
    self._kind = kind
    self._data = data
    self._during = during
    self._dies_in = dies_in

  def initialize(self, process):
    seeds = np.array(secret_noise.draw_key(), np.int64)
    return (*super().initialize(process), seeds)

  def next(self, state, client_ids):
    *state, seeds = state
    number = int(state[1]) + 1
    if number in self._during:
      self._during[number]()
    if number == self._dies_in:
      raise SystemExit
    (value, done), report = super().next(tuple(state), client_ids)
    noise = secrets.randbits(30)
    if self._kind == "correlated":
      noise = int(seeds[0]) % 2**30
      self._world.sums_by_noise[seeds.tobytes()].add((value, self._data))
    return (value + self._data + noise, done, seeds + 1), report

  def structured_state(self, state):
    noise = secret_noise.SecretState(state[2], np.float32(1.0))
    return super().structured_state(state[:2])._replace(aggregator=noise)

  def load_state(self, structure):
    seeds = np.asarray(structure.aggregator.seeds)
    return (*super().load_state(structure), seeds)


class World:
  """Directories of runs, and their budget.

  Attributes:
    path: Directory that they are in.
    kind: One of `KINDS`.
    used: For each round, digests of the lines whose models were used.
    sums_by_noise: Sums that were added to each draw of correlated noise.
    refused: Errors of the programs that could not go on.
  """

  def __init__(self, path: pathlib.Path, kind: str, epsilon: float = 100.0):
    self.path = path
    self.kind = kind
    self.used: list[set[str]] = [set() for _ in range(ROUNDS)]
    self.sums_by_noise = collections.defaultdict(set)
    self.refused: list[str] = []
    values = {"epsilon": epsilon, "delta": _DELTA, "num_users": _NUM_USERS}
    (path / "budget.json").write_text(json.dumps(values))

  @property
  def budget(self) -> budget.Budget:
    """The budget, as its file has it."""
    return budget.read(self.path / "budget.json")

  @property
  def really_spent(self) -> float:
    """Epsilon of all the models that were used."""
    return cost(self.kind, list(map(len, self.used)))

  def copy(self, name: str, other: str) -> None:
    """Copies a directory, over another one if that is there."""
    shutil.rmtree(self.path / other, ignore_errors=True)
    shutil.copytree(self.path / name, self.path / other)

  def delete(self, name: str) -> None:
    """Deletes a directory."""
    shutil.rmtree(self.path / name)

  def run(self, name: str, *, is_finished: bool = True, **options) -> None:
    """Runs a program in a directory, to its end unless an option ends it.

    Args:
      name: Name of the directory.
      is_finished: Whether the program tells the budget that it has ended.
      **options: Options of `_start`.
    """
    path = self.path / name
    try:
      chain = self._start(path, **options)
      if is_finished:
        self._charge(path, chain, chain.ledger, is_finished=True)
    except SystemExit:
      pass
    except errors.FieldError as error:
      self.refused.append(str(error))

  def _start(
    self,
    path: pathlib.Path,
    *,
    during: dict[int, Callable[[], None]] | None = None,
    dies_in: int | None = None,
    dies_before_charge_of: int | None = None,
    data: float = 0.0,
  ) -> chain_lib.Chain:
    path.mkdir(exist_ok=True)
    planned = _plan(self.kind)
    chain = chains.begin(path, planned)
    rounds_done = max(run_directory.checkpointed_rounds(path), default=0)

    def charge(ledger):
      if loop.state.rounds_done + 1 == dies_before_charge_of:
        raise SystemExit
      self._charge(path, chain, ledger)

    runtime = _Noisy(
      self, self.kind, during=during or {}, dies_in=dies_in, data=data
    )
    config = {"rounds": ROUNDS, "evaluate_every": 0, "checkpoint_every": 5}
    with loops.start(
      path, planned, runtime, chain=chain, config=config, charge=charge
    ) as loop:
      charge(chain.ledger_to_the_end(rounds_done))
      loop.run()
    return chain

  def _charge(
    self,
    path: pathlib.Path,
    chain: chain_lib.Chain,
    ledger: ledger_lib.Ledger,
    *,
    is_finished: bool = False,
  ) -> None:
    budget.charge(
      self.path / "budget.json",
      ledger,
      run_id=chain.run_id,
      run_dir=str(path),
      users="theirs",
      lines=chain.lines_of_rounds,
      is_finished=is_finished,
    )
    # The models are used, as the charge was not refused.
    for number, lines in enumerate(chain.lines_of_rounds):
      self.used[number].update(lines)
