"""Tests of participation and of the event that a round amounts to."""

import json
import math

import dp_accounting
import numpy as np
import pytest

from tff_fedemb.data import participation as samplers
from tff_fedemb.privacy import accounting
from tff_fedemb.privacy import composition

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


@pytest.mark.parametrize(
  ("participation", "sensitivity", "relation"),
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
  assert participation.unit == "user"


def test_sampling_names_what_was_run():
  words = _poisson(3_400, 64.0, 4).sampling
  for part in ("Poisson", "3,400", " 64 expected", "4 users per"):
    assert part in words
  words = _fixed_size(3_400, 64).sampling
  for part in ("Fixed-size", "64 of 3,400", "without replacement"):
    assert part in words


@pytest.mark.parametrize(
  ("create", "message"),
  [
    (lambda: _poisson(num_users=0), "num_users must be .* found 0"),
    (lambda: _poisson(num_users=10.0), "num_users must be .* found 10.0"),
    (lambda: _poisson(users_per_round=0), "users_per_round must be"),
    (lambda: _poisson(users_per_round=1_001), "found 1001"),
    (lambda: _poisson(users_per_round=math.nan), "found nan"),
    (lambda: _poisson(users_per_client=0), "users_per_client must be"),
    (lambda: _poisson(users_per_client=11), "users_per_round must be"),
    (lambda: _fixed_size(users_per_round=10.0), "found 10.0"),
    (lambda: _fixed_size(users_per_round=True), "found True"),
    (lambda: _fixed_size(np.float64(1_000.0)), "found 1000.0"),
    (lambda: _fixed_size(users_per_round=np.bool_(True)), "found True"),
    (lambda: _poisson(np.int64(0)), "num_users must be .* found 0"),
    (lambda: accounting.Participation("poisson", 9, 3), "kind must be"),
  ],
)
def test_participation_refuses(create, message):
  with pytest.raises(ValueError, match=message):
    create()


@pytest.mark.parametrize(
  "participation", [_poisson(users_per_round=9.5), _fixed_size()]
)
def test_participation_survives_json(participation):
  text = json.dumps(participation.to_json())
  restored = accounting.Participation.from_json(json.loads(text))
  assert restored == participation


@pytest.mark.parametrize(
  ("participation", "expected"),
  [
    (
      _poisson(np.int64(1_000), np.int32(10), np.uint8(2)),
      _poisson(1_000, 10, 2),
    ),
    (_poisson(users_per_round=np.float64(9.5)), _poisson(1_000, 9.5)),
    (
      _fixed_size(np.int64(1_000), np.int64(10), np.int64(5)),
      _fixed_size(1_000, 10, 5),
    ),
  ],
)
def test_numpy_numbers_become_pythons(participation, expected):
  assert participation == expected
  # JSON refuses NumPy's integers.
  assert json.dumps(participation.to_json()) == json.dumps(expected.to_json())


def test_round_event_divides_by_the_sensitivity_once():
  gaussian = dp_accounting.GaussianDpEvent
  assert composition.round_event(
    _GAUSSIAN, _poisson()
  ) == dp_accounting.PoissonSampledDpEvent(0.01, gaussian(1.0))
  assert composition.round_event(
    _GAUSSIAN, _poisson(users_per_client=2)
  ) == dp_accounting.PoissonSampledDpEvent(0.01, gaussian(0.5))
  assert composition.round_event(
    _GAUSSIAN, _fixed_size()
  ) == dp_accounting.SampledWithoutReplacementDpEvent(1_000, 10, gaussian(0.5))
  assert composition.round_event(
    _GAUSSIAN, _fixed_size(), sensitivity_in_clip_norms=1
  ) == dp_accounting.SampledWithoutReplacementDpEvent(1_000, 10, gaussian(1.0))


@pytest.mark.parametrize(
  "event",
  [dp_accounting.GaussianDpEvent(0.0), dp_accounting.NonPrivateDpEvent()],
)
@pytest.mark.parametrize("participation", [_poisson(), _fixed_size()])
def test_no_noise_is_not_private(event, participation):
  assert (
    composition.round_event(event, participation)
    == dp_accounting.NonPrivateDpEvent()
  )


@pytest.mark.parametrize(
  "event",
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
  with pytest.raises(ValueError, match=r"must be .* found"):
    composition.round_event(event, _poisson())


def test_round_event_refuses_a_sensitivity_of_zero():
  with pytest.raises(ValueError, match="sensitivity_in_clip_norms must be"):
    composition.round_event(_GAUSSIAN, _poisson(), sensitivity_in_clip_norms=0)


@pytest.mark.parametrize(
  ("relation", "accountant", "supported"),
  [
    (_ADD_OR_REMOVE, "rdp", {"gaussian", "poisson"}),
    (_ADD_OR_REMOVE, "pld", {"gaussian", "poisson"}),
    (_REPLACE, "rdp", {"gaussian", "fixed_size"}),
    (_REPLACE, "pld", {"gaussian"}),
  ],
)
def test_what_the_accountants_support(relation, accountant, supported):
  """Holds the module's rules to the installed dp_accounting."""
  classes = {
    "rdp": dp_accounting.rdp.RdpAccountant,
    "pld": dp_accounting.pld.PLDAccountant,
  }
  events = {
    "gaussian": _GAUSSIAN,
    "poisson": composition.round_event(_GAUSSIAN, _poisson()),
    "fixed_size": composition.round_event(_GAUSSIAN, _fixed_size()),
  }
  ledger = classes[accountant](neighboring_relation=relation)
  assert {k for k, v in events.items() if ledger.supports(v)} == supported


def test_fixed_size_has_no_pld():
  assert accounting.supported_accountants(_fixed_size()) == ("rdp",)
  with pytest.raises(ValueError, match="accountants must be among"):
    accounting.select_accountants(_fixed_size(), ("pld",))


def test_passes_bound_participations_where_the_separation_does_not():
  # 77 rounds a pass; 40 apart would allow 20 participations in 800 rounds.
  sampler = samplers.MinSeparationSampler(770, 10, min_separation=40)
  known = accounting.Participation.of_sampler(sampler, rounds=800)
  assert known.participations(800) == 11
  assert known.participations(41) == 2
  assert accounting.Participation.of_sampler(sampler).participations(800) == 20


@pytest.mark.parametrize(
  ("sampler", "kind"),
  [
    (samplers.PoissonSampler(20, 2), "poisson"),
    (samplers.FixedSizeSampler(20, 2), "fixed_size"),
    (samplers.MinSeparationSampler(20, 2), "min_separation"),
  ],
)
def test_claim_is_the_samplers(sampler, kind):
  claim = accounting.Participation.of_sampler(sampler, rounds=30)
  assert claim.kind.value == kind
  assert claim.participations(30) == (3 if kind == "min_separation" else 30)
  assert (claim.num_users, claim.users_per_round) == (20, 2)
  assert accounting.Participation.from_json(claim.to_json()) == claim


def test_sampler_of_an_unknown_class_has_no_claim():
  class Other(samplers.PoissonSampler):
    pass

  with pytest.raises(ValueError, match="sampler must be one of"):
    accounting.Participation.of_sampler(Other(20, 2))
