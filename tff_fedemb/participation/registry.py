"""Participations by name, as flags, files and ledgers have them."""

from tff_fedemb import registry
from tff_fedemb.participation import balls_in_bins
from tff_fedemb.participation import check_ins
from tff_fedemb.participation import cyclic_poisson
from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import min_separation
from tff_fedemb.participation import participation
from tff_fedemb.participation import poisson
from tff_fedemb.participation import random_allocation

# A new way to take part is one class and one line here.
_CLASSES: tuple[type[participation.Participation], ...] = (
  poisson.Poisson,
  cyclic_poisson.CyclicPoisson,
  random_allocation.RandomAllocation,
  balls_in_bins.BallsInBins,
  fixed_size.FixedSize,
  min_separation.MinSeparation,
  check_ins.CheckIns,
)
PARTICIPATIONS: registry.Registry[participation.Participation] = (
  registry.Registry(
    participation.Participation,
    {each.name: each for each in _CLASSES},
    kind="participation",
  )
)
create_participation = PARTICIPATIONS.create
