"""Slots of an audited training: their users, and whether they take part.

Every canary, and every user, has a slot of the participation and a fair coin. A
slot whose coin says no is drawn as the others and sends nothing: this is the
neighbour that each of the participations names (with fixed-size sampling, that
in which the user is replaced by one who sends nothing). The epsilon that a
lower bound is compared with is therefore the run's own, of all slots.
"""

import dataclasses
import secrets

import numpy as np

from tff_fedemb import errors
from tff_fedemb.data import population
from tff_fedemb.privacy.audit import canary_updates
from tff_fedemb.privacy.audit import scores as scores_lib
from tff_fedemb.privacy.audit import users as users_lib
from tff_fedemb.run import task as task_lib
from tff_fedemb.training import audit_settings

# Attacks, by what they look for.
UPDATES, CANARY_USERS, USERS = "canary_updates", "canary_users", "users"
_MAX_MADE_UP_LABELS = 4


class Slots:
  """Owners of the slots and their coins: users, then canary updates."""

  def __init__(
    self,
    task: task_lib.Task,
    config: audit_settings.AuditConfig,
    canaries: canary_updates.CanaryUpdates,
  ):
    rng = np.random.default_rng(secrets.randbits(128))
    num_users = len(task.train_users)
    num_crafted = config.num_canary_users
    if num_crafted is None:
      num_crafted = num_users // 2
    if num_crafted > num_users:
      raise errors.FieldError(
        "num_canary_users", f"be at most {num_users:,}, all users", num_crafted
      )
    crafted = rng.permutation(num_users)[:num_crafted]
    size = num_users + canaries.number
    self._task, self._canaries = task, canaries
    self._is_crafted = np.isin(np.arange(num_users), crafted)
    self.included = rng.random(size) < 0.5
    self.of = {
      UPDATES: np.arange(num_users, size),
      CANARY_USERS: np.flatnonzero(self._is_crafted),
      USERS: np.flatnonzero(~self._is_crafted),
    }
    self.num_labels = min(_MAX_MADE_UP_LABELS, task.num_train_classes)

  def _user_id(self, slot: int) -> str:
    num_users = len(self._is_crafted)
    if slot >= num_users:
      return self._canaries.client_id(slot - num_users)
    user_id = self._task.train_users.user_id(slot)
    return users_lib.canary_id(user_id) if self._is_crafted[slot] else user_id

  def are_enough(self, attack: str) -> bool:
    """Whether enough were included, and enough not, to bound anything."""
    included = int(self.included[self.of[attack]].sum())
    left_out = len(self.of[attack]) - included
    return min(included, left_out) >= 2 * scores_lib.MIN_SCORES

  def create_task(self) -> task_lib.Task:
    """The task in which every slot is a user."""
    return dataclasses.replace(
      self._task,
      train_users=population.Population(len(self.included), self._user_id),
      create_client_dataset=self._canaries.wrap_dataset(
        users_lib.wrap_dataset(
          self._task.create_client_dataset, self.num_labels
        ),
        self._task.train_users.user_id(0),
      ),
      find_bad_examples=task_lib.find_none,
    )

  def read_images(self, attack: str) -> users_lib.UserImages:
    """Images that the attacker has of the users that an attack looks for."""
    return users_lib.read_images(
      self._task.create_client_dataset,
      [self._task.train_users.user_id(slot) for slot in self.of[attack]],
      num_labels=self.num_labels if attack == CANARY_USERS else None,
      decode_images=self._task.decode_images,
    )
