"""Users who are drawn anew in every round: what a secret draw is worth."""

import dataclasses
from typing import ClassVar

from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.participation import participation


@dataclasses.dataclass(frozen=True)
class Sampled(participation.Participation):
  """Users are drawn anew in every round.

  Privacy:
    Unit, sensitivity: those of the participation.
    Neighbouring relation: the participation's; under a known schedule nobody
      else's rounds change either.
    DpEvent: that of the participation while nobody knows the draw. Under a
      known schedule, the mechanism's event is composed for each round of a
      user, and no amplification may be claimed.

  Attributes:
    known_schedule: Whether anyone may know who is drawn when, as from a seed
      that you chose; if so, sampling amplifies nothing.
    max_participations: Maximum number of rounds of a user [as many as there can
      be]; where users are sampled, for a known schedule alone.
  """

  _: dataclasses.KW_ONLY
  known_schedule: bool = False
  max_participations: int | None = config.field(None, minimum=1)

  def __post_init__(self):
    super().__post_init__()
    if self.max_participations is not None and not self.known_schedule:
      raise errors.FieldError(
        "max_participations",
        f"not be given with participation {self.name} unless its schedule is"
        " known: anyone may be drawn every time",
        self.max_participations,
      )

  # Accountants of a draw that nobody knows.
  secret_accountants: ClassVar[tuple[str, ...]]

  @property
  def accountants(self) -> tuple[str, ...]:
    """Those of the secret draw; under a known schedule, RDP and the exact one.

    Under a known schedule a run is a composition of Gaussian mechanisms.
    """
    if self.known_schedule:
      return "rdp", "gaussian"
    return self.secret_accountants

  @property
  def is_sampled(self) -> bool:
    """True unless the schedule is known."""
    return not self.known_schedule

  @property
  def amplification(self) -> str:
    """Amplification by a secret draw that leaves some users out."""
    if self.known_schedule:
      return (
        "none: who is drawn when is taken to be known, as from a given seed"
      )
    if not self.is_amplified:
      return "none: the draw leaves nobody out"
    return "by sampling, from a secret key: nobody may know who is drawn when"

  @property
  def breaks_if(self) -> str:
    """Where the draw amplifies: if anyone learns who took part when."""
    if not self.is_amplified:
      return super().breaks_if
    return (
      "It breaks if anyone learns who took part when: the draw has to stay"
      " secret."
    )

  @property
  def sampling(self) -> str:
    """The words of the base class, and whether sampling amplifies."""
    return f"{super().sampling}; amplification {self.amplification}"

  def with_known_schedule(
    self, max_participations: int | None = None
  ) -> "Sampled":
    """Returns the same without amplification, for example for a seed you chose.

    Args:
      max_participations: Most rounds of a user in the schedule, which is drawn
        from no data; None if it is not known, so that it may be all rounds.
    """
    return dataclasses.replace(
      self, known_schedule=True, max_participations=max_participations
    )

  def with_secret_schedule(self) -> "Sampled":
    """Returns the same with amplification by a draw that nobody knows.

    It drops `max_participations`: anyone may be drawn every time.
    """
    return dataclasses.replace(
      self, known_schedule=False, max_participations=None
    )
