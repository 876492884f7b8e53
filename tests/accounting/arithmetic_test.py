"""Tests of what the arithmetic of noise costs, against coins that err."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from tff_fedemb.accounting import arithmetic
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.mechanisms import tree_strategy
from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import min_separation
from tff_fedemb.participation import poisson

_SUM = composition.RoundSum(0.5, 1.0, 97_000)


def _hockey_stick(p, q, epsilon):
  return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


@pytest.mark.parametrize(
  ("num_numbers", "error"), [(10, 0.2), (1_000, 0.01), (100_000, 1e-3)]
)
def test_coins_that_err_are_within_the_bound(num_numbers, error):
  """All coins err as far as they may, to the worst side."""
  counts = np.arange(num_numbers + 1)
  fair, biased = (
    stats.binom.pmf(counts, num_numbers, chance)
    for chance in (0.5, 0.5 * (1 + error))
  )
  failure = 1e-6
  bound = arithmetic.log_ratio_bound(num_numbers, error, math.log(failure))
  for one, other in ((fair, biased), (biased, fair)):
    assert _hockey_stick(one, other, bound) <= failure
    # No less by much would do.
    assert _hockey_stick(one, other, bound / 4) > failure


def test_the_figures_of_the_documentation():
  # a = 1.25 z sqrt(d) 2^-37; twice T d a^2 + a sqrt(2 T d log(1 / failure)).
  for multiplier, size, runs, printed in (
    (1.0, 97_000, 100, "0.00014"),
    (1.0, 3_000_000, 150, "0.005"),
    (1.0, 25_000_000, 800, "0.1"),
    (8.0, 25_000_000, 800, "0.83"),
  ):
    epsilon = arithmetic.add_to_epsilon(
      lambda delta: 0.0,
      1e-7,
      round_sum=composition.RoundSum(1.0, multiplier, size),
      runs=runs,
    )
    assert epsilon == pytest.approx(float(printed), rel=0.08)


def test_a_count_adds_its_own():
  """A large cohort's count is coarser than the sum of a small model."""
  runs, count, size = 800, 1e5, 1_000
  failure = 1e-7 * 2**-22 * math.exp(-1)
  error = 1.25 * 2**-37
  spread = runs * error**2 * (size**2 + count**2)
  bound = spread + math.sqrt(-2 * spread * math.log(failure))
  found = arithmetic.add_to_epsilon(
    lambda delta: 0.0,
    1e-7,
    round_sum=composition.RoundSum(1.0, 1.0, size, count),
    runs=runs,
  )
  assert found == pytest.approx(2 * bound, rel=1e-6)


def test_delta_is_what_is_left_of_it():
  """A mechanism has an epsilon of a tenth of log(1 / delta)."""
  asked = []

  def epsilon_at(delta):
    asked.append(delta)
    return -math.log(delta) / 10

  total = arithmetic.add_to_epsilon(epsilon_at, 1e-5, round_sum=_SUM, runs=100)
  bound = (total - epsilon_at(asked[1])) / 2
  assert asked[0] == 1e-5
  assert asked[1] == pytest.approx(1e-5 * (1 - 2**-20) * math.exp(-bound))
  failure = 1e-5 * 2**-22 * math.exp(-epsilon_at(1e-5) - 1)
  spent = math.exp(bound) * asked[1]
  spent += failure * (1 + math.exp(epsilon_at(asked[1]) + bound))
  assert spent <= 1e-5


@pytest.mark.parametrize(
  ("exact", "multiplier", "size"), [(math.inf, 1.0, 10), (1.0, 1e-6, 10)]
)
def test_where_nothing_is_known(exact, multiplier, size):
  assert math.inf == arithmetic.add_to_epsilon(
    lambda delta: exact,
    1e-5,
    round_sum=composition.RoundSum(1.0, multiplier, size),
    runs=1,
  )


def test_a_run_reports_it_in_its_epsilon():
  claim = poisson.Poisson(1_000, 10.0)
  exact = ledger_lib.create_ledger(
    claim, composition.Noise(1.0), 100, delta=1e-5, accountants=("rdp",)
  )
  computed = dataclasses.replace(exact, round_sum=_SUM)
  before, after = exact.report(), computed.report()
  assert before.arithmetic_epsilon is None
  assert 1.3e-4 < after.arithmetic_epsilon < 2e-4
  assert after.epsilon == before.epsilon + after.arithmetic_epsilon
  assert after.epsilon_by_accountant == before.epsilon_by_accountant
  assert f"{after.arithmetic_epsilon:.2g} by which" in after.statement
  assert ledger_lib.Ledger.from_json(computed.to_json()) == computed


def test_correlated_noise_has_no_bound():
  noise = composition.Noise(8.0, tree_strategy.TreeStrategy())
  claim = min_separation.MinSeparation(100, 10)
  report = ledger_lib.create_ledger(
    claim, noise, 10, delta=1e-5, round_sum=_SUM
  ).report()
  assert report.arithmetic_epsilon is None
  assert any("correlated noise" in text for text in report.not_covered)


@pytest.mark.parametrize(
  ("claim", "strategy", "moved"),
  [
    (min_separation.MinSeparation(20, 10), None, 1.0),
    # A user moves two clip norms.
    (fixed_size.FixedSize(30, 10), None, 2.0),
    # In a tree of two rounds a user of one of them moves two nodes: by sqrt(2)
    # over the run, which any of the two draws may bear.
    (
      min_separation.MinSeparation(20, 10),
      tree_strategy.TreeStrategy(),
      math.sqrt(2.0),
    ),
  ],
)
def test_tails_of_noise_that_ends(claim, strategy, moved):
  def tail(noise_multiplier, times=1):
    noise = composition.Noise(noise_multiplier, strategy)
    ledger = ledger_lib.Ledger(claim, delta=1e-5)
    ledger = ledger.with_rounds(noise, 2, times=times)
    return arithmetic.tail_probability(
      arithmetic.most_moved(ledger), ledger.num_runs
    )

  # A pair is beyond 5 standard deviations with probability exp(-12.5).
  noise = moved / (arithmetic.NOISE_REACH - 5.0)
  assert tail(noise) == pytest.approx(2 * 3.72665e-6, rel=1e-5)
  if strategy is None:
    # A round that ran twice may be impossible twice.
    assert tail(noise, 2) == pytest.approx(4 * 3.72665e-6, rel=1e-5)
  assert tail(1.28) < 1e-14
  # Releases with and without the user have nothing in common.
  assert tail(0.02) == 1.0


@pytest.mark.parametrize("moved", [0.01, 0.5, 1.6, 3.0, 8.7])
def test_tails_over_how_many_numbers_the_user_may_move(moved):
  reach = arithmetic.NOISE_REACH
  for num_pairs in (1, 100, 48_500):
    bound = arithmetic.tail_probability(moved, 1, size=2 * num_pairs)
    for num_moved in {1, min(2, num_pairs), min(50, num_pairs), num_pairs}:
      moves = np.zeros(num_pairs)
      moves[:num_moved] = moved / math.sqrt(num_moved)
      # A pair is beyond r standard deviations with probability exp(-r^2 / 2).
      assert np.exp(-((reach - moves) ** 2) / 2).sum() <= bound
  assert bool(list(arithmetic.warnings_of_end(moved, 1, 1e-9))) == (moved > 2)
