"""b-min-sep sampling: a coin for each user in each round, but soon after one.

Dong and Ganesh 2026, "Privacy Amplification for BandMF via b-Min-Sep
Subsampling" (arXiv 2602.09338).
"""

import dataclasses
import functools

import numpy as np

from tff_fedemb import checks
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb import progress as progress_lib
from tff_fedemb.participation import participation
from tff_fedemb.participation import poisson

_COINS, _START = 0, 7


class _Rounds:
  """The users of rounds in turn: a coin for each who may be in one.

  Every round depends on those before it, which are drawn anew unless they were
  the last that were asked for. Holds an integer per user.
  """

  def __init__(self, claim: "BMinSep", key: int):
    self._claim, self._key = claim, key
    self._start()

  def _start(self):
    claim = self._claim
    places = participation.create_generator(self._key, 0, _START).random(
      claim.num_users
    )
    # Users start as if earlier rounds had drawn their share of them.
    since = 1.0 + np.floor(places / claim.sampling_probability)
    self._last = -np.minimum(since, claim.min_separation).astype(np.int32)
    self._round_num = -1

  def users(self, round_num: int) -> np.ndarray:
    """Returns the sorted slots of a round."""
    claim = self._claim
    if round_num <= self._round_num - claim.min_separation:
      self._start()
    # A run that resumes late draws all rounds before.
    for number in progress_lib.create_bar(
      "Drawing users again",
      unit="rounds",
      items=range(self._round_num + 1, round_num + 1),
    ):
      coins = participation.create_generator(self._key, number, _COINS).random(
        claim.num_users
      )
      takes_part = coins < claim.coin_probability
      takes_part &= self._last <= number - claim.min_separation
      self._last[takes_part] = number
      self._round_num = number
    # Who was in a later round is in none of the last ones before it.
    return np.flatnonzero(self._last == round_num)


_rounds_of = functools.lru_cache(maxsize=1)(_Rounds)


@dataclasses.dataclass(frozen=True)
class BMinSep(poisson.Poisson):
  """Each user flips a coin in each round, but not soon after one of theirs.

  In the `min_separation` - 1 rounds after one that a user took part in, they do
  not. In others they do with the same probability, `coin_probability`,
  independently of the others. A run begins as if it had long been running: by
  chance some users have to wait first, so that each round has each user with
  the same probability, `users_per_round / num_users`, from round 0 on. Virtual
  clients are made as by `poisson`, which this is at a separation of 1; at the
  largest one, `num_users / users_per_round`, every coin is heads, and it is
  `balls_in_bins`.

  Privacy:
    Unit: user.
    Neighbouring relation: a user's slot stays empty; the number of slots, the
      probability and the separation are public. Nobody else changes coin or
      virtual client.
    Sensitivity: one virtual client changes in each round that the user is in:
      from or to nothing for `users_per_client` 1 (C), from one update to
      another above (2 C).
    DpEvent: `BMinSepDpEvent` for the whole run, of independent noise or of a
      matrix of at most `min_separation` bands; at a separation of 1 that of
      `poisson`, whose accountants are exact.

  Attributes:
    min_separation: Rounds from one participation of a user to the next.
  """

  name = "b_min_sep"
  is_servers_choice = False
  field_of_bands = "min_separation"
  is_for_bands = True
  drawn_by = "the number of slots, the probability and the separation"

  _: dataclasses.KW_ONLY
  min_separation: int | None = config.field(None, minimum=1)

  def settle(self) -> None:
    super().settle()
    if self.min_separation is None:
      # This suits independent noise; who knows the bands of another gives one.
      object.__setattr__(self, "min_separation", 1)
    if self.min_separation * self.users_per_round > self.num_users:
      raise errors.FieldError(
        "min_separation",
        "be at most num_users / users_per_round ="
        f" {self.num_users / self.users_per_round:.6g}: others have no"
        f" {checks.count_in_words(self.users_per_round)} users to draw",
        self.min_separation,
      )

  @property
  def accountants(self) -> tuple[str, ...]:
    if self.known_schedule or self.min_separation == 1:
      return super().accountants
    # A user's rounds hang together: no round has an event of its own.
    return ("monte_carlo",)

  @property
  def coin_probability(self) -> float:
    """Probability that a user takes part in a round who may."""
    users = self.users_per_round
    return users / (self.num_users - (self.min_separation - 1) * users)

  @property
  def users_in_words(self) -> str:
    return (
      f"b-min-sep sampling: each of {self.num_users:,} users takes part in a"
      f" round by a coin of probability {self.coin_probability:.4g}, not"
      f" flipped in the {self.min_separation - 1:,} rounds after one of theirs"
    )

  def draw_users(self, round_num: int, *, key: int) -> np.ndarray:
    return _rounds_of(self, key).users(round_num)
