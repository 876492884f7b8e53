"""Tests of epsilon accounting against closed forms and known equivalences."""

import itertools
import json
import math

import dp_accounting
import numpy as np
import pytest

from tff_fedemb.privacy import accounting

_ADD_OR_REMOVE = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
_REPLACE = dp_accounting.NeighboringRelation.REPLACE_ONE
_GAUSSIAN = dp_accounting.GaussianDpEvent(1.0)


def _poisson(num_users=1_000, users_per_round=10.0, users_per_client=1):
  return accounting.Participation(
      accounting.ParticipationKind.POISSON,
      num_users,
      users_per_round,
      users_per_client,
  )


def _fixed_size(num_users=1_000, users_per_round=10, users_per_client=1):
  return accounting.Participation(
      accounting.ParticipationKind.FIXED_SIZE,
      num_users,
      users_per_round,
      users_per_client,
  )


def _epsilon(participation, noise_multiplier, rounds, accountant='rdp'):
  return accounting.epsilon_by_accountant(
      [(dp_accounting.GaussianDpEvent(noise_multiplier), rounds)],
      participation,
      1e-5,
      accountants=(accountant,),
  )[accountant]


def _gaussian_delta(epsilon, mu):
  """Balle and Wang 2018, theorem 8: exact delta of the Gaussian mechanism."""

  def cdf(x):
    return 0.5 * math.erfc(-x / math.sqrt(2))

  return cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * cdf(
      -mu / 2 - epsilon / mu
  )


@pytest.mark.parametrize(
    ('participation', 'sensitivity', 'relation'),
    [
        (_poisson(), 1, _ADD_OR_REMOVE),
        (_poisson(users_per_client=2), 2, _ADD_OR_REMOVE),
        (_fixed_size(), 2, _REPLACE),
        (_fixed_size(users_per_client=5), 2, _REPLACE),
    ],
)
def test_sensitivity_and_relation(participation, sensitivity, relation):
  assert participation.sensitivity_in_clip_norms == sensitivity
  assert participation.neighboring_relation is relation
  assert participation.sampling_probability == 0.01
  assert participation.unit == 'user'


def test_sampling_names_what_was_run():
  words = _poisson(3_400, 64.0, 4).sampling
  for part in ('Poisson', '3,400', ' 64 expected', '4 users per'):
    assert part in words
  words = _fixed_size(3_400, 64).sampling
  for part in ('Fixed-size', '64 of 3,400', 'without replacement'):
    assert part in words


@pytest.mark.parametrize(
    ('create', 'message'),
    [
        (lambda: _poisson(num_users=0), 'num_users must be .* found 0'),
        (lambda: _poisson(num_users=10.0), 'num_users must be .* found 10.0'),
        (lambda: _poisson(users_per_round=0), 'users_per_round must be'),
        (lambda: _poisson(users_per_round=1_001), 'found 1001'),
        (lambda: _poisson(users_per_round=math.nan), 'found nan'),
        (lambda: _poisson(users_per_client=0), 'users_per_client must be'),
        (lambda: _poisson(users_per_client=11), 'users_per_round must be'),
        (lambda: _fixed_size(users_per_round=10.0), 'found 10.0'),
        (lambda: _fixed_size(users_per_round=True), 'found True'),
        (lambda: accounting.Participation('poisson', 9, 3), 'kind must be'),
    ],
)
def test_participation_refuses(create, message):
  with pytest.raises(ValueError, match=message):
    create()


@pytest.mark.parametrize(
    'participation', [_poisson(users_per_round=9.5), _fixed_size()]
)
def test_participation_survives_json(participation):
  text = json.dumps(participation.to_json())
  restored = accounting.Participation.from_json(json.loads(text))
  assert restored == participation


def test_round_event_divides_by_the_sensitivity_once():
  gaussian = dp_accounting.GaussianDpEvent
  assert accounting.round_event(
      _GAUSSIAN, _poisson()
  ) == dp_accounting.PoissonSampledDpEvent(0.01, gaussian(1.0))
  assert accounting.round_event(
      _GAUSSIAN, _poisson(users_per_client=2)
  ) == dp_accounting.PoissonSampledDpEvent(0.01, gaussian(0.5))
  assert accounting.round_event(
      _GAUSSIAN, _fixed_size()
  ) == dp_accounting.SampledWithoutReplacementDpEvent(1_000, 10, gaussian(0.5))
  assert accounting.round_event(
      _GAUSSIAN, _fixed_size(), sensitivity_in_clip_norms=1
  ) == dp_accounting.SampledWithoutReplacementDpEvent(1_000, 10, gaussian(1.0))


@pytest.mark.parametrize(
    'event',
    [dp_accounting.GaussianDpEvent(0.0), dp_accounting.NonPrivateDpEvent()],
)
@pytest.mark.parametrize('participation', [_poisson(), _fixed_size()])
def test_no_noise_is_not_private(event, participation):
  assert (
      accounting.round_event(event, participation)
      == dp_accounting.NonPrivateDpEvent()
  )
  epsilons = accounting.epsilon_by_accountant(
      [(_GAUSSIAN, 5), (event, 1)], participation, 1e-5
  )
  assert set(epsilons) == set(accounting.supported_accountants(participation))
  assert all(epsilon == math.inf for epsilon in epsilons.values())


@pytest.mark.parametrize(
    'event',
    [
        dp_accounting.LaplaceDpEvent(1.0),
        dp_accounting.NoOpDpEvent(),
        dp_accounting.UnsupportedDpEvent(),
        dp_accounting.PoissonSampledDpEvent(0.1, _GAUSSIAN),
        dp_accounting.SelfComposedDpEvent(_GAUSSIAN, 2),
        dp_accounting.GaussianDpEvent(-1.0),
        dp_accounting.GaussianDpEvent(math.nan),
        dp_accounting.GaussianDpEvent(math.inf),
    ],
)
def test_round_event_refuses(event):
  with pytest.raises(ValueError, match=r'must be .* found'):
    accounting.round_event(event, _poisson())


def test_round_event_refuses_a_sensitivity_of_zero():
  with pytest.raises(ValueError, match='sensitivity_in_clip_norms must be'):
    accounting.round_event(_GAUSSIAN, _poisson(), sensitivity_in_clip_norms=0)


@pytest.mark.parametrize(
    ('relation', 'accountant', 'supported'),
    [
        (_ADD_OR_REMOVE, 'rdp', {'gaussian', 'poisson'}),
        (_ADD_OR_REMOVE, 'pld', {'gaussian', 'poisson'}),
        (_REPLACE, 'rdp', {'gaussian', 'fixed_size'}),
        (_REPLACE, 'pld', {'gaussian'}),
    ],
)
def test_what_the_accountants_support(relation, accountant, supported):
  """Holds the module's rules to the installed dp_accounting."""
  classes = {
      'rdp': dp_accounting.rdp.RdpAccountant,
      'pld': dp_accounting.pld.PLDAccountant,
  }
  events = {
      'gaussian': _GAUSSIAN,
      'poisson': accounting.round_event(_GAUSSIAN, _poisson()),
      'fixed_size': accounting.round_event(_GAUSSIAN, _fixed_size()),
  }
  ledger = classes[accountant](neighboring_relation=relation)
  assert {k for k, v in events.items() if ledger.supports(v)} == supported


def test_replace_one_does_not_double_by_itself():
  """The reason for the division in `round_event`."""
  assert accounting.epsilon_of(
      [(_GAUSSIAN, 10)],
      1e-5,
      accountant='rdp',
      neighboring_relation=_REPLACE,
  ) == accounting.epsilon_of(
      [(_GAUSSIAN, 10)],
      1e-5,
      accountant='rdp',
      neighboring_relation=_ADD_OR_REMOVE,
  )


def test_pld_is_refused_for_fixed_size():
  event = accounting.round_event(_GAUSSIAN, _fixed_size())
  with pytest.raises(ValueError, match='fixed-size'):
    accounting.epsilon_of(
        [(event, 1)], 1e-5, accountant='pld', neighboring_relation=_REPLACE
    )
  assert accounting.supported_accountants(_fixed_size()) == ('rdp',)
  with pytest.raises(ValueError, match='accountants must be among'):
    accounting.select_accountants(_fixed_size(), ('pld',))


def test_event_of_the_other_sampler_is_refused():
  event = accounting.round_event(_GAUSSIAN, _fixed_size())
  with pytest.raises(ValueError, match='event must be supported'):
    accounting.epsilon_of(
        [(event, 1)],
        1e-5,
        accountant='rdp',
        neighboring_relation=_ADD_OR_REMOVE,
    )


@pytest.mark.parametrize('delta', [0, 1, -0.1, math.nan])
def test_delta_out_of_range(delta):
  with pytest.raises(ValueError, match='delta must be'):
    accounting.epsilon_of(
        [], delta, accountant='rdp', neighboring_relation=_ADD_OR_REMOVE
    )


def test_unknown_accountant():
  with pytest.raises(ValueError, match="found 'moments'"):
    accounting.create_accountant('moments', _ADD_OR_REMOVE)


def test_broken_accounting_is_not_epsilon_zero():
  class Broken(dp_accounting.rdp.RdpAccountant):

    @property
    def rdp(self):
      return np.array([math.nan])

  with pytest.raises(ValueError, match='found NaN'):
    accounting.current_epsilon(Broken(), 1e-5)


@pytest.mark.parametrize(
    ('noise_multiplier', 'rounds'), [(1.0, 1), (4.0, 100), (20.0, 1_000)]
)
def test_rdp_of_the_plain_gaussian_in_closed_form(noise_multiplier, rounds):
  """Every user takes part: rho = T / (2 z^2), best order over a fine grid."""
  delta = 1e-5
  orders = np.concatenate(
      [np.arange(11, 109) / 10.0, np.arange(11, 64), [128, 256, 512, 1024]]
  )
  expected = np.min(
      rounds * orders / (2 * noise_multiplier**2)
      + np.log1p(-1 / orders)
      - np.log(delta * orders) / (orders - 1)
  )
  epsilon = _epsilon(_poisson(100, 100), noise_multiplier, rounds)
  # The accountant's own grid of orders differs at a few places.
  assert epsilon == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize(
    ('noise_multiplier', 'rounds'), [(1.0, 1), (4.0, 25), (10.0, 100)]
)
def test_pld_of_the_plain_gaussian_is_exact(noise_multiplier, rounds):
  """T rounds at z are one at z / sqrt(T), whose delta is known exactly."""
  epsilon = _epsilon(_poisson(100, 100), noise_multiplier, rounds, 'pld')
  mu = math.sqrt(rounds) / noise_multiplier
  assert _gaussian_delta(epsilon, mu) == pytest.approx(1e-5, rel=2e-3)


@pytest.mark.parametrize('accountant', ['rdp', 'pld'])
def test_sampling_everybody_amplifies_nothing(accountant):
  plain = accounting.epsilon_of(
      [(_GAUSSIAN, 3)],
      1e-5,
      accountant=accountant,
      neighboring_relation=_ADD_OR_REMOVE,
  )
  everybody = _epsilon(_poisson(50, 50), 1.0, 3, accountant)
  assert everybody == pytest.approx(plain, rel=1e-4)


def test_fixed_size_of_everybody_is_the_gaussian_at_half_the_noise():
  assert _epsilon(_fixed_size(50, 50), 2.0, 3) == pytest.approx(
      _epsilon(_poisson(50, 50), 1.0, 3), rel=1e-12
  )


@pytest.mark.parametrize('accountant', ['rdp', 'pld'])
def test_groups_cost_half_the_noise(accountant):
  assert _epsilon(
      _poisson(users_per_client=2), 2.0, 100, accountant
  ) == _epsilon(_poisson(), 1.0, 100, accountant)


@pytest.mark.parametrize('noise_multiplier', [0.7, 1.0, 3.0])
def test_pld_is_at_most_rdp(noise_multiplier):
  epsilons = accounting.epsilon_by_accountant(
      [(dp_accounting.GaussianDpEvent(noise_multiplier), 200)],
      _poisson(),
      1e-5,
  )
  assert 0 < epsilons['pld'] <= epsilons['rdp']
  assert accounting.leading(epsilons) == ('pld', epsilons['pld'])


@pytest.mark.parametrize('create', [_poisson, _fixed_size])
def test_epsilon_is_monotone(create):
  by_noise = [_epsilon(create(), z, 100) for z in (1.0, 2.0, 4.0)]
  by_rounds = [_epsilon(create(), 2.0, rounds) for rounds in (0, 10, 100)]
  by_users = [
      _epsilon(create(users_per_round=users), 2.0, 100)
      for users in (1, 30, 1_000)
  ]
  assert by_rounds[0] == 0
  for increasing in (by_noise[::-1], by_rounds, by_users):
    assert all(a < b for a, b in itertools.pairwise(increasing))


@pytest.mark.parametrize('noise_multiplier', [1.0, 2.0])
def test_fixed_size_costs_more_than_poisson(noise_multiplier):
  assert _epsilon(_fixed_size(), noise_multiplier, 100) > _epsilon(
      _poisson(), noise_multiplier, 100
  )


def test_pld_is_left_out_where_it_would_take_minutes():
  epsilons = accounting.epsilon_by_accountant(
      [(dp_accounting.GaussianDpEvent(0.02), 10)],
      _poisson(),
      1e-5,
      accountants=('pld', 'rdp'),
  )
  assert set(epsilons) == {'rdp'}
  assert epsilons['rdp'] > accounting.PLD_EPSILON_LIMIT


@pytest.mark.parametrize('virtual', [None, math.inf, 3.5])
def test_report_survives_json(virtual):
  report = accounting.PrivacyReport(
      epsilon=math.inf,
      delta=1e-6,
      unit='user',
      neighboring_relation='replace one user',
      sampling='words',
      accountant='rdp',
      epsilon_by_accountant={'rdp': math.inf},
      sensitivity_in_clip_norms=2.0,
      unit_is_virtual_client_epsilon=virtual,
      rounds=3,
      noise_multiplier=0.0,
      num_users=10,
      users_per_round=2,
      users_per_client=1,
      released='models',
      not_covered=('metrics',),
      statement='words',
      warnings=(),
  )
  values = report.to_json()
  assert values['epsilon'] == 'inf'
  text = json.dumps(values, allow_nan=False)
  assert accounting.PrivacyReport.from_json(json.loads(text)) == report
