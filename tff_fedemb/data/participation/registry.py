"""Participations by name."""

from collections.abc import Mapping
import dataclasses
from typing import Any

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb import registry
from tff_fedemb.data.participation import b_min_sep
from tff_fedemb.data.participation import balls_in_bins
from tff_fedemb.data.participation import check_ins
from tff_fedemb.data.participation import cyclic_poisson
from tff_fedemb.data.participation import fixed_size
from tff_fedemb.data.participation import min_separation
from tff_fedemb.data.participation import participation
from tff_fedemb.data.participation import poisson

# A new way to take part is one class and one line here.
PARTICIPATIONS: registry.Registry[participation.Participation] = (
  registry.Registry(
    participation.Participation,
    {
      poisson.Poisson.name: poisson.Poisson,
      cyclic_poisson.CyclicPoisson.name: cyclic_poisson.CyclicPoisson,
      b_min_sep.BMinSep.name: b_min_sep.BMinSep,
      balls_in_bins.BallsInBins.name: balls_in_bins.BallsInBins,
      fixed_size.FixedSize.name: fixed_size.FixedSize,
      min_separation.MinSeparation.name: min_separation.MinSeparation,
      check_ins.CheckIns.name: check_ins.CheckIns,
    },
  )
)


def create_participation(
  name: str, *, num_users: int, users_per_round: float, **options: Any
) -> participation.Participation:
  """Creates a participation by name.

  Args:
    name: Of one of `PARTICIPATIONS`.
    num_users: Size of the population.
    users_per_round: Users of a round.
    **options: Other fields; None is as if it were not given.

  Raises:
    errors.FieldError: If the name is unknown, a number out of its range or an
      option not one of this participation.
  """
  checks.check_choice("participation", name, PARTICIPATIONS)
  participation_class = PARTICIPATIONS[name]
  known = {field.name for field in dataclasses.fields(participation_class)}
  options = {key: value for key, value in options.items() if value is not None}
  for key, value in options.items():
    if key not in known:
      raise errors.FieldError(
        key,
        f"not be given with participation {name}, which has no use for it",
        value,
      )
  return participation_class(num_users, users_per_round, **options)


def to_json(claim: participation.Participation) -> dict[str, Any]:
  """Returns a dictionary that JSON can hold.

  Raises:
    TypeError: If its class could not be found again.
  """
  return {"kind": PARTICIPATIONS.name_of(claim)} | dataclasses.asdict(claim)


def from_json(values: Mapping[str, Any]) -> participation.Participation:
  """Inverse of `to_json`.

  Raises:
    errors.FieldError: As `create_participation`.
  """
  fields = {key: value for key, value in values.items() if key != "kind"}
  return create_participation(values["kind"], **fields)
