"""Centralized training on pooled data: the non-private upper baseline.

Xu et al. 2023, section 4 ("Centralized"). It is a learning process as well, so
it runs with the same runtimes, checkpoints and metrics. A round has a single
client, whose data are the pooled examples of the users of that round. It trains
backbone and global head by mini-batch SGD, and the server takes its result
unchanged.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from etils import epy

from tff_fedemb import checks
from tff_fedemb import config as config_lib
from tff_fedemb.algorithms import fedavg
from tff_fedemb.mechanisms import none

with epy.lazy_imports():
  import tensorflow_federated as tff

_USERS_PER_ROUND = 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class Centralized(fedavg.FedAvg):
  """Training on pooled data.

  The optimizer's state (momentum) starts afresh in every round. `next` takes
  exactly one client; the model's weights are the backbone's followed by the
  head's.

  Privacy: none; the model may remember any user.

  Attributes:
    users_per_round: Users whose examples make up a round [256, or all if there
      are fewer].

  Examples:
    >>> images = np.zeros([24, 8, 8, 1], np.uint8)
    >>> labels, users = np.arange(24) % 4, np.arange(24) // 3
    >>> task = fe.ArrayTask(images, labels, users, test=(images, labels))
    >>> algorithm = fe.Centralized(users_per_round=8, head=fe.CosineHead())
    >>> fe.RunSpec(task=task, algorithm=algorithm, rounds=2).mechanism
  """

  is_private: ClassVar[bool] = False

  users_per_round: int | None = config_lib.field(None, minimum=1)

  def count_users(self, num_users: int) -> int:
    """Returns the number of users of a round.

    Args:
      num_users: Number of users who train.

    Raises:
      errors.FieldError: If a round would need more users than there are.
    """
    if self.users_per_round is None:
      return min(_USERS_PER_ROUND, num_users)
    checks.check_integer(
      "users_per_round", self.users_per_round, minimum=1, maximum=num_users
    )
    return self.users_per_round

  def build(
    self, create_backbone_fn: Any, **options: Any
  ) -> tff.learning.templates.LearningProcess:
    """Builds the process of a plain mean of one client and a server rate of 1.

    Args:
      create_backbone_fn: See `Algorithm.build`.
      **options: Options of `Algorithm.build` other than `aggregator` and
        `server_optimizer`, which are fixed here.

    Returns:
      A learning process for exactly one client per round.
    """
    return super().build(
      create_backbone_fn,
      aggregator=none.NoneConfig().create(clients_per_round=1).factory,
      server_optimizer=tff.learning.optimizers.build_sgdm(1.0),
      **options,
    )
