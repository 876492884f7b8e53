"""Tests of what all participations have in common, and of their claims."""

import functools
import hashlib
import math

import dp_accounting
import numpy as np
import pytest

from tests.participation import draws
from tests.participation import traces
from tff_fedemb import errors
from tff_fedemb.accounting import composition
from tff_fedemb.participation import balls_in_bins
from tff_fedemb.participation import cyclic_poisson
from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import min_separation
from tff_fedemb.participation import participation
from tff_fedemb.participation import poisson
from tff_fedemb.participation import random_allocation
from tff_fedemb.participation import registry

# A deployment decides who takes part in `check_ins`.
_NAMES = sorted({*registry.PARTICIPATIONS} - {"check_ins"})


# So that users are in blocks, or have to wait.
_APART = {
  "cyclic_poisson": {"period": 2},
  "random_allocation": {"period": 2},
}


def _create(name, num_users, clients_per_round, users_per_client=1):
  return registry.create_participation(
    name,
    num_users=num_users,
    users_per_round=clients_per_round * users_per_client,
    users_per_client=users_per_client,
    **_APART.get(name, {}),
  )


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("users_per_client", [1, 3])
def test_a_user_is_in_one_virtual_client_at_most(name, users_per_client):
  claim = _create(name, 100, 10, users_per_client)
  rounds = draws.draw(claim, 50)
  traces.check(claim, rounds)
  traces.check(claim.with_known_schedule(), rounds)
  for clients in rounds:
    slots = np.concatenate(clients)
    assert np.unique(slots).size == slots.size
    assert slots.min() >= 0
    assert slots.max() < 100
    assert all(client.size for client in clients)


@pytest.mark.parametrize("name", _NAMES)
def test_nobody_is_drawn_before_the_number_of_users_is_known(name):
  claim = _create(name, None, 10)
  with pytest.raises(errors.FieldError, match="num_users must be given"):
    claim.sample(0, key=1)


@pytest.mark.parametrize("name", _NAMES)
def test_every_user_takes_part_equally_often(name):
  claim = _create(name, 30, 2, 3)
  rounds, share = 2000, claim.users_per_round / 30
  counts = np.bincount(
    np.concatenate(list(map(draws.users, draws.draw(claim, rounds, key=0)))),
    minlength=30,
  )
  # At most as far apart as Binomial(2000, share): five standard deviations; a
  # false alarm among 30 users has a probability below 2e-5.
  bound = 5 * np.sqrt(rounds * share * (1 - share))
  assert np.all(np.abs(counts - rounds * share) < bound)


@pytest.mark.parametrize("name", _NAMES)
def test_rounds_are_a_function_of_key_and_round(name):
  def sample(key, round_num):
    clients = _create(name, 40, 4, 2).sample(round_num, key=key)
    return [client.tolist() for client in clients]

  first = sample(1, 7)
  assert sample(1, 8) != first
  # A resumed run draws what the uninterrupted one would have drawn.
  assert sample(1, 7) == first
  assert sample(1, 7) != sample(2, 7)


# The first version that draws from a key made these: traces can be replayed.
@pytest.mark.parametrize(
  ("claim", "expected"),
  [
    (fixed_size.FixedSize, [[22, 36], [9, 7], [35, 29]]),
    (min_separation.MinSeparation, [[23, 0], [33, 34], [37, 20]]),
    (poisson.Poisson, [[10], [19]]),
    (
      functools.partial(cyclic_poisson.CyclicPoisson, period=3),
      [[5, 7, 9, 10, 20], [19]],
    ),
    (random_allocation.RandomAllocation, [[4, 12, 35], [0, 17]]),
  ],
)
def test_draws_do_not_change_from_version_to_version(claim, expected):
  clients = claim(40, 6, users_per_client=2).sample(9, key=4)
  assert [client.tolist() for client in clients] == expected


@pytest.mark.parametrize(
  ("claim", "other"),
  [
    (cyclic_poisson.CyclicPoisson(500, 40), poisson.Poisson(500, 40)),
    (
      balls_in_bins.BallsInBins(1_000, 95),
      cyclic_poisson.CyclicPoisson(1_000, 95, period=10),
    ),
  ],
)
def test_some_draw_as_others_do(claim, other):
  assert _rounds(claim) == _rounds(other)


def test_a_stream_is_philox_under_a_derived_key():
  key, round_num, stream = 2**127 + 9, 7, 2
  digest = hashlib.blake2b(
    round_num.to_bytes(8, "little") + stream.to_bytes(8, "little"),
    key=key.to_bytes(16, "little"),
    digest_size=16,
  ).digest()
  expected = np.random.Generator(
    np.random.Philox(key=int.from_bytes(digest, "little"))
  )
  generator = participation.create_generator(key, round_num, stream)
  np.testing.assert_array_equal(
    *(each.integers(2**63, size=4) for each in (generator, expected))
  )


@pytest.mark.parametrize(
  ("name", "sensitivities", "relation"),
  [
    ("poisson", [1, 2], "ADD_OR_REMOVE_ONE"),
    ("fixed_size", [2, 2], "REPLACE_ONE"),
    ("min_separation", [1, 2], "REPLACE_SPECIAL"),
  ],
)
def test_sensitivity_and_relation(name, sensitivities, relation):
  claims = [_create(name, 1_000, 10 // size, size) for size in (1, 2)]
  assert [c.sensitivity_in_clip_norms for c in claims] == sensitivities
  assert {c.neighboring_relation.name for c in claims} == {relation}
  assert {c.sampling_probability for c in claims} == {0.01}


def _rounds(claim, without=None):
  """Virtual clients of 40 rounds, without a slot if it is empty."""
  found = []
  for drawn in draws.draw(claim, 40):
    clients = [set(client.tolist()) - {without} for client in drawn]
    found.append(sorted(sorted(client) for client in clients if client))
  return found


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("users_per_client", [1, 2])
def test_the_relation_is_what_a_new_draw_bears_out(name, users_per_client):
  claim = _create(name, 60, 6 // users_per_client, users_per_client)
  words = claim.neighboring_relation_in_words
  # With one user more others take part: nobody is added or removed.
  more = claim.resized(num_users=61, users_per_round=6)
  assert _rounds(more, without=60) != _rounds(claim)
  assert "add" not in words
  if name == "fixed_size":
    assert words == "replace one user"
    return
  assert words.startswith("a user's slot stays empty; the number of slots")
  assert words.endswith("are public")
  known = claim.with_known_schedule().neighboring_relation_in_words
  assert "the number of slots and the schedule are public" in known
  if claim.is_sampled:
    # By the same coins, periods and bins, an empty slot moves nobody.
    same = claim.resized(num_users=59, users_per_round=5.9)
    assert same.sampling_probability == claim.sampling_probability
    assert same.min_separation == claim.min_separation
    assert _rounds(same) == _rounds(claim, without=59)
    assert "the probability" in words


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("users_per_client", [1, 2])
def test_an_empty_slot_changes_no_more_than_the_sensitivity(
  name, users_per_client
):
  claim = _create(name, 60, 6 // users_per_client, users_per_client)
  for slot in (0, 31):
    pairs = zip(_rounds(claim), _rounds(claim, without=slot), strict=True)
    for clients, left in pairs:
      gone = [client for client in clients if client not in left]
      assert len(gone) <= 1
      if claim.sensitivity_in_clip_norms == 1:
        # One clip norm: a virtual client of theirs alone, or none.
        assert gone in ([], [[slot]])


@pytest.mark.parametrize("name", _NAMES)
def test_a_draw_of_everybody_amplifies_nothing(name):
  # A draw takes the users of one block alone.
  block = 20 // _APART.get(name, {}).get("period", 1)
  claim, everybody = _create(name, 20, block // 2), _create(name, 20, block)
  assert claim.is_amplified == claim.is_sampled
  assert ("stay secret" in claim.breaks_if) == claim.is_sampled
  assert not everybody.is_amplified
  assert "secret" not in everybody.breaks_if
  assert everybody.amplification.startswith("none: ")


@pytest.mark.parametrize("name", _NAMES)
def test_a_known_schedule_amplifies_nothing(name):
  claim = _create(name, 1_000, 50)
  known = claim.with_known_schedule(7)
  if not claim.is_sampled:
    assert known == claim.with_secret_schedule() == claim
    assert "not sampled" in claim.amplification
    return
  rounds = composition.Rounds(count=40, noise=composition.Noise(4.0))
  if not claim.is_drawn_once:
    ((of_secret, count), *_) = composition.composed_events([rounds], claim)
    assert of_secret == claim.sampled_event(
      dp_accounting.GaussianDpEvent(4.0 / claim.sensitivity_in_clip_norms)
    )
    assert count <= claim.participations(40)
  assert composition.composed_events([rounds], known) == [
    (
      dp_accounting.GaussianDpEvent(4.0 / claim.sensitivity_in_clip_norms),
      min(7, claim.participations(40)),
    )
  ]
  assert not known.is_sampled
  assert known.accountants == ("rdp", "gaussian")
  assert "is taken to be known" in known.sampling
  assert "secret" in claim.sampling
  assert known.with_secret_schedule() == claim


def test_poisson_accounts_for_the_probability_it_draws_with():
  """Also if a class of one's own has another one."""

  class Half(poisson.Poisson):
    """Half of all users take part, whatever `users_per_round` says."""

    sampling_probability = 0.5

  rounds = composition.Rounds(count=30, noise=composition.Noise(1.0))
  for claim, probability in (
    (poisson.Poisson(200, 2), 0.01),
    (poisson.Poisson(200, 100), 0.5),
    (Half(200, 2), 0.5),
  ):
    ((composed, count),) = composition.composed_events([rounds], claim)
    assert (composed.sampling_probability, count) == (probability, 30)
    drawn = [len(claim.sample(r, key=1)) for r in range(100)]
    # Binomial(20,000, p), five standard deviations.
    bound = 5 * math.sqrt(20_000 * probability * (1 - probability))
    assert abs(sum(drawn) - 20_000 * probability) < bound
