"""Claims of privacy that a run does not support: each is refused in words.

The line that refuses says what was assumed and what was run.
"""

import functools
import math

import dp_accounting
import numpy as np
import pytest
from scipy import stats

from tff_fedemb.data import participation_check
from tff_fedemb.data import participation_trace
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.participation import registry as participations
from tff_fedemb.privacy import epsilon as epsilon_lib
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.privacy import planning
from tff_fedemb.strategies import strategy as strategy_lib
from tff_fedemb.strategies import tree

_GAUSSIAN = dp_accounting.GaussianDpEvent(4.0)
_TREE = strategy_lib.CorrelatedGaussianDpEvent(4.0, tree.TreeStrategy())
_OTHER_TREE = strategy_lib.CorrelatedGaussianDpEvent(8.0, _TREE.strategy)
_KINDS = ("poisson", "fixed_size", "min_separation", "cyclic_poisson")
_NUM_USERS = 1_000
_USERS_PER_ROUND = 50
_ROUNDS = 40


def _claim(kind, **options):
  options = {
    "num_users": _NUM_USERS,
    "users_per_round": _USERS_PER_ROUND,
    **options,
  }
  if kind == "cyclic_poisson":
    blocks = options["num_users"] // options["users_per_round"]
    options["period"] = min(4, blocks)
  return participations.create_participation(kind, **options)


def _sampled(kind, **options):
  """What is drawn, round by round."""
  claim = _claim(kind, **options)
  return [claim.sample(number, key=5) for number in range(_ROUNDS)]


def _alone(slots):
  """Each user as a virtual client."""
  return [slots[i : i + 1] for i in range(slots.size)]


def _report(claim, rounds, path, *, num_users=_NUM_USERS, num_recorded=None):
  """Reports a ledger of the claim against a trace of the rounds."""
  with participation_trace.TraceWriter(path, num_users) as writer:
    for number, clients in enumerate(rounds):
      writer.record(number, clients)
  ledger = ledger_lib.Ledger(claim, delta=1e-5, accountants=("rdp",))
  event = _GAUSSIAN if claim.is_sampled else _TREE
  ledger = ledger.with_rounds(event, num_recorded or len(rounds))
  with participation_trace.TraceReader(path) as reader:
    return ledger.report(reader)


@pytest.mark.parametrize("kind", _KINDS)
def test_what_was_run_may_be_claimed(kind, tmp_path):
  report = _report(_claim(kind), _sampled(kind), tmp_path / "trace")
  assert 0 < report.epsilon < math.inf
  assert "trace of the run does not refute" in report.statement
  assert f"trace of {_ROUNDS} rounds" in report.participation_checked


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize(
  ("num_users", "clients", "users_per_client"),
  [(1_000, 50, 1), (200, 5, 10), (12, 3, 4), (9, 2, 1), (40, 30, 1)],
)
def test_honest_runs_are_not_refused(
  kind, num_users, clients, users_per_client
):
  # Of 20 x 40 traces, each refused with a probability of about 1e-11 at most.
  for seed in range(40):
    claim = _claim(
      kind,
      num_users=num_users,
      users_per_round=clients * users_per_client,
      users_per_client=users_per_client,
    )
    observed = participation_check.observe(
      num_users, _as_read(claim, 1 + seed, seed), lag=claim.min_separation or 1
    )
    claim.check_trace(observed, rounds=1 + seed)


def _as_read(claim, num_rounds, seed):
  """Rounds as a trace has them."""
  for number in range(num_rounds):
    clients = claim.sample(number, key=seed)
    yield participation_trace.RecordedRound.of(number, clients)


def _too_frequent(kind):
  """User 3 in every round, in place of somebody else."""
  rounds = []
  for clients in _sampled(kind):
    others = np.setdiff1d(np.concatenate(clients), [3])
    size = sum(map(len, clients))
    rounds.append(_alone(np.append(others[: size - 1], 3)))
  return rounds


def _shuffled_and_cut(every=1):
  """As large as they should be; groups of equal size in every n-th round."""
  rounds = _sampled("poisson", users_per_client=10)
  generator = np.random.default_rng(1)
  for clients in rounds[::every]:
    users = generator.permutation(np.concatenate(clients))
    clients[:] = np.array_split(users, 5)
  return rounds


def _likelier(probability, rounds=30):
  """User 3 with a probability of their own, in place of nobody."""
  generator = np.random.default_rng(2)
  claim = _claim("poisson", users_per_round=32)
  drawn = []
  for number in range(rounds):
    users = np.setdiff1d(np.concatenate(claim.sample(number, key=5)), [3])
    if generator.random() < probability:
      users = np.append(users, 3)
    drawn.append(_alone(users))
  return drawn


def _one_larger():
  rounds = _sampled("poisson")
  rounds[7] = _alone(np.arange(150))
  return rounds


def _one_closer():
  rounds = [[np.array([number])] for number in range(_ROUNDS)]
  rounds[30] = [np.array([12])]
  return rounds


def _passes(num_users):
  claim = _claim("min_separation", num_users=num_users)
  return [claim.sample(number, key=1) for number in range(200)]


# What was claimed, what was run, what is said, and more of `_report`.
_REFUSED = {
  "more virtual clients than claimed": (
    _claim("fixed_size", users_per_client=10),
    lambda: _sampled("fixed_size"),
    "virtual clients of 10 users were assumed, 5 a round; the trace has a "
    "round of 50",
  ),
  "fixed size under a Poisson claim": (
    _claim("poisson"),
    lambda: _sampled("fixed_size"),
    "poisson participation was assumed, in which the number of users varies; "
    "every one of 40 rounds in the trace has exactly 50: that is fixed_size",
  ),
  "Poisson under a fixed-size claim": (
    _claim("fixed_size"),
    lambda: _sampled("poisson"),
    "fixed_size participation was assumed, in which every round has exactly 50 "
    "users; the trace has rounds of [34][0-9] to 6[0-9]",
  ),
  "larger rounds under a Poisson claim": (
    _claim("poisson"),
    _one_larger,
    "poisson participation was assumed, in which a round has 50 users on "
    "average; .* to 150, 54.5 on average, too far from that to be chance",
  ),
  "sampling under a separation claim": (
    _claim("min_separation"),
    lambda: _sampled("fixed_size"),
    "at most 2 participations of a user in 40 rounds were assumed; in the "
    "trace user",
  ),
  "closer than the separation": (
    _claim("min_separation"),
    _one_closer,
    "a separation of at least 20 rounds between two participations of a user "
    "was assumed; in the trace user 12 is in rounds 12 and 30",
  ),
  "a user more often than claimed": (
    _claim("min_separation", max_participations=1),
    lambda: _sampled("min_separation"),
    "at most 1 participations of a user in 40 rounds were assumed; .* has 2",
  ),
  "a round larger than claimed": (
    _claim("min_separation", users_per_round=20, min_separation=20),
    lambda: _sampled("min_separation"),
    "at most 20 users in a round were assumed; the trace has a round of 50",
  ),
  "rounds missing in the trace": (
    _claim("poisson"),
    lambda: _sampled("poisson"),
    "the trace must hold the 45 rounds that are accounted for, found 40",
    {"num_recorded": 45},
  ),
  "another population": (
    _claim("fixed_size", num_users=10_000_000),
    lambda: _sampled("fixed_size"),
    "the trace must be of 10,000,000 users, as the accounting assumes, found "
    "one of 1,000",
  ),
}
for _every in (1, 3):
  _REFUSED[f"shuffled and cut in one of {_every} rounds"] = (
    _claim("poisson", users_per_client=10),
    functools.partial(_shuffled_and_cut, _every),
    "poisson participation was assumed, in which every user joins a virtual"
    " client independently of the others; in the trace .* of 40 rounds have"
    " virtual clients of equal size: its users were shuffled and cut",
  )
_REFUSED["a user with probability 0.5 instead of 0.032"] = (
  _claim("poisson", users_per_round=32),
  lambda: _likelier(0.5),
  "with probability 0.032; in the trace user 3 is in 1[0-9] of 30 rounds",
)
_REFUSED["a user who is never drawn"] = (
  _claim("poisson", users_per_round=600),
  lambda: [
    _alone(np.setdiff1d(np.concatenate(clients), [3]))
    for clients in _sampled("poisson", users_per_round=600)
  ],
  "with probability 0.6; in the trace a user is in no more than 0 of 40",
)
for _kind in _KINDS:
  _REFUSED[f"groups under a claim of users on their own, {_kind}"] = (
    _claim(_kind),
    functools.partial(_sampled, _kind, users_per_client=10),
    "virtual clients of one user were assumed, .* the trace has virtual "
    "clients of several",
  )
for _kind, _size in (("fixed_size", 1_000), ("poisson", 1_007)):
  _REFUSED[f"passes under a claim of sampling, {_kind}"] = (
    _claim(_kind, num_users=_size),
    functools.partial(_passes, _size),
    f"{_kind} participation was assumed, in which two consecutive rounds have"
    " .* they have 0 to 0: its users were not drawn independently for every",
    {"num_users": _size},
  )
  _REFUSED[f"one cohort again and again under a claim of sampling, {_kind}"] = (
    _claim(_kind),
    lambda: [_alone(np.arange(_USERS_PER_ROUND))] * 3,
    f"{_kind} participation was assumed, in which two consecutive rounds have"
    " .* they have 50 to 50",
  )
  _REFUSED[f"a user more often than sampling explains, {_kind}"] = (
    _claim(_kind),
    functools.partial(_too_frequent, _kind),
    f"{_kind} participation was assumed, in which a user is in a round with "
    "probability 0.05; in the trace user 3 is in 40 of 40 rounds",
  )


@pytest.mark.parametrize("case", _REFUSED)
def test_a_trace_that_refutes_the_claim(case, tmp_path):
  claim, create_rounds, message, *options = _REFUSED[case]
  with pytest.raises(participation_lib.ClaimError, match=message):
    _report(claim, create_rounds(), tmp_path / "trace", **dict(*options))


def test_evidence_against_independent_groups_is_fair():
  """Its expectation is 1: the law of even rounds is exact."""
  claim, seen = _claim("poisson", users_per_client=10), []
  rounds = 4_000
  chances = []
  for number in range(rounds):
    sizes = [client.size for client in claim.sample(number, key=11)]
    even = len(sizes) == 5 and max(sizes) - min(sizes) <= 1
    seen.append(even)
    # All ways to share the users out, from the definition for few of them.
    chances.append(stats.multinomial(sum(sizes), [0.2] * 5))
  expected = []
  for law in chances:
    size, larger = divmod(law.n, 5)
    shape = [size + 1] * larger + [size] * (5 - larger)
    expected.append(math.comb(5, larger) * law.pmf(shape))
  variance = sum(p * (1 - p) for p in expected)
  # Five standard deviations.
  assert abs(sum(seen) - sum(expected)) < 5 * math.sqrt(variance)
  assert sum(expected) > 3


@pytest.mark.parametrize("mechanism", ["tree", "blt", "banded"])
@pytest.mark.parametrize("kind", ["poisson", "fixed_size"])
def test_amplification_of_correlated_noise(mechanism, kind):
  plan = planning.create_plan(
    mechanism, _claim("min_separation"), 40, 4.0, 1e-5
  )
  ledger = ledger_lib.Ledger(_claim(kind), delta=1e-5)
  with pytest.raises(ValueError) as of_run:
    ledger.with_rounds(plan.event)
  with pytest.raises(ValueError) as of_plan:
    planning.create_plan(mechanism, _claim(kind), 40, 4.0, 1e-5)
  for caught in (of_run, of_plan):
    message = str(caught.value)
    assert message.startswith("participation must be min_separation")
    assert mechanism in message
    assert "amplification by sampling assumes fresh noise" in message
    assert message.endswith(f"found {kind}.")


@pytest.mark.parametrize(
  ("kind", "accountant"),
  [
    ("fixed_size", "pld"),
    ("fixed_size", "gaussian"),
    ("poisson", "gaussian"),
    ("cyclic_poisson", "gaussian"),
  ],
)
def test_an_accountant_that_does_not_know_the_sampling(kind, accountant):
  claim = _claim(kind)
  with pytest.raises(ValueError, match=f"for {kind} participation, found"):
    ledger_lib.Ledger(claim, delta=1e-5, accountants=(accountant,))
  counts = [(claim.sampled_event(_GAUSSIAN), 1)]
  relation = claim.neighboring_relation
  with pytest.raises(ValueError, match="event must be supported"):
    epsilon_lib.epsilon_of(
      counts, 1e-5, accountant=accountant, neighboring_relation=relation
    )


@pytest.mark.parametrize(
  "events", [(_TREE, _GAUSSIAN), (_GAUSSIAN, _TREE), (_TREE, _OTHER_TREE)]
)
def test_correlated_noise_that_is_not_the_same_in_all_rounds(events):
  ledger = ledger_lib.Ledger(_claim("min_separation"), delta=1e-5)
  ledger = ledger.with_rounds(events[0])
  with pytest.raises(
    ValueError, match=r"must be the same in all rounds .* found .*Tree"
  ):
    ledger.with_rounds(events[1])


@pytest.mark.parametrize(
  ("delta", "warned"), [(1e-3, True), (0.01, True), (9e-4, False)]
)
def test_delta_that_allows_to_give_a_user_away(delta, warned):
  """Not refused, as it is no false claim, but said."""
  report = planning.create_report(
    planning.create_plan("gaussian", _claim("poisson"), 40, 4.0, delta)
  )
  warning = f"delta {delta:g} is not below 1 / num_users = 0.001"
  assert (warning in report.warnings) == warned
