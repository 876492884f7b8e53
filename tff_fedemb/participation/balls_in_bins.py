"""Balls in bins: each user in the same round of every pass, drawn at random.

Chua et al. 2024, "Balls-and-Bins Sampling for DP-SGD" (arXiv 2412.16802);
Choquette-Choo et al. 2024, "Near Exact Privacy Amplification for Matrix
Mechanisms" (arXiv 2410.06266).
"""

import dataclasses
import math

from tff_fedemb import errors
from tff_fedemb.participation import cyclic_poisson


@dataclasses.dataclass(frozen=True)
class BallsInBins(cyclic_poisson.CyclicPoisson):
  """Each user is in one bin in secret; a pass has a round for every bin.

  There are floor(num_users / users_per_round) bins, and each user joins one at
  random, independently of the others and for the whole run. A round draws the
  users of its bin, all but a few: each with a probability above 1 - 1 / bins,
  so that there are `users_per_round` on average. Users, rounds and virtual
  clients are drawn as by `cyclic_poisson` with the largest period. The claim
  differs: nobody knows which bin a user is in, and this secret alone amplifies
  privacy, with any matrix of the noise.

  Privacy:
    Unit: user.
    Neighbouring relation: a user's slot stays empty; the number of slots, that
      of bins and the probability are public. Nobody else changes bin or virtual
      client.
    Sensitivity: one virtual client changes in each round of the user's bin:
      from or to nothing for `users_per_client` 1 (C), from one update to
      another above (2 C).
    DpEvent: `BallsInBinsDpEvent` for the whole run; with independent noise
      `RandomAllocationDpEvent`, whose accountant is nearly exact. The claim
      makes no use of rounds of their bin that a user stays out of.

  Attributes:
    period: Bins; follows from the users of a round.

  Examples:
    >>> mechanism = fe.Gaussian(noise_multiplier=1.0)
    >>> users = fe.BallsInBins(users_per_round=500)
    >>> cost = fe.epsilon(mechanism, users, num_users=10_000, rounds=20)
    >>> round(cost, 2)
    1.36
  """

  name = "balls_in_bins"
  is_servers_choice = False
  field_of_bands = None  # The number of bins is the largest possible.
  drawn_by = "the number of slots, the number of bins and the probability"
  secret_accountants = ("monte_carlo", "allocation")
  set_by_users = ("period",)

  def settle(self) -> None:
    """Sets the number of bins, which follows from the users of a round.

    Raises:
      errors.FieldError: If a period was given that is not the number of bins,
        or as in the base class.
    """
    bins = max(math.floor(self.num_slots / self.users_per_round), 1)
    if self.period is None:
      object.__setattr__(self, "period", bins)
    super().settle()
    if self.period != bins:
      raise errors.FieldError(
        "period",
        f"be num_users / users_per_round rounded down, {bins:,}, with"
        f" participation {self.name}",
        self.period,
      )

  @property
  def is_drawn_once(self) -> bool:
    """True while nobody knows who is in which bin.

    With a known schedule, the rounds of a user are accounted for one by one.
    """
    return self.is_sampled

  @property
  def is_amplified(self) -> bool:
    """Whether nobody knows who is in which of several bins."""
    return self.is_sampled and self.num_blocks > 1

  @property
  def amplification(self) -> str:
    """Amplification by the secret of the bins, not by a draw in each round."""
    if not self.is_amplified:
      return super().amplification
    return "by the secret of who is in which bin, drawn once for the whole run"

  @property
  def users_in_words(self) -> str:
    """Names the number of bins and the probability to take part in a round."""
    return (
      f"Balls in bins: each of {self.num_users:,} users is in one of"
      f" {self.period:,} bins for the whole run, and takes part in round t of"
      f" bin t mod {self.period:,} with probability"
      f" {self.sampling_probability:.4g}"
    )
