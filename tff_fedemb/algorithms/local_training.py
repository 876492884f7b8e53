"""Training of a backbone and a head on a client's own data, by SGD.

Xu et al. 2023, section 3 (DP-FedEmb): the head learns faster than the backbone
(`head_lr_scale`) and may be trained alone first (`head_warmup_steps`). After
that, both are trained, or the backbone alone (`freeze_head`: federated
reconstruction, Singhal et al. 2021; the `reconst_iters` of the authors). Our
addition: a head's rows may start at the mean direction of their class's
embeddings (`head_imprint_steps`: Qi, Brown and Lowe, "Low-Shot Learning with
Imprinted Weights", CVPR 2018).
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import math
from typing import Any

from etils import epy

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.data import augmentation as augmentation_lib
from tff_fedemb.models import heads

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

CLIENT_OPTIMIZERS = ("sgd", "sgdm", "adam")
# Factors of the learning rate by the share of the run that is over. To add a
# schedule, add one line here.
SCHEDULES: dict[str, Callable[[Any], Any] | None] = {
  "constant": None,
  "linear": lambda progress: 1.0 - progress,
  "cosine": lambda progress: 0.5 * (1.0 + tf.cos(math.pi * progress)),
}
# Clients count their examples in 32 bits.
_MAX_EXAMPLES = 2**30


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalTraining(config_lib.Config):
  """Hyperparameters of local training.

  Attributes:
    optimizer: Client optimizer, its state fresh in every round.
    learning_rate: Learning rate of the backbone on clients.
    momentum: Momentum of client optimizer sgdm.
    schedule: Client learning rate over the rounds; all but constant fall to 0.
    head_lr_scale: Learning rate of the head / of the backbone.
    head_warmup_steps: Steps in which the head is trained alone, before the
      local epochs.
    freeze_head: Whether the local epochs train the backbone alone, under the
      head as `head_warmup_steps` and `head_imprint_steps` left it.
    head_imprint_steps: Batches of the client's images from whose embeddings the
      rows of a cosine head are made, before anything is trained: the mean
      direction of each class. A class that is in none of them keeps a random
      row.
    epochs: Passes over a client's examples in a round.
    batch_size: Examples of a step; the last one of an epoch may have fewer.
    max_examples_per_client: Maximum number of examples of a virtual client in a
      round, drawn from twice as many, its users in turn; 0: all.
    turned_classes: Whether each image turned by 90, 180 and 270 degrees is a
      further example, of a class of its own.
    augmentation: Random changes of training images, fresh for each step.

  Examples:
    >>> local = fe.LocalTraining(learning_rate=0.1, epochs=2, batch_size=16)
    >>> fe.FedEmb(local=local).local.head_lr_scale
    10.0
  """

  optimizer: str = config_lib.field(
    "sgd",
    choices=CLIENT_OPTIMIZERS,
    flag="client_optimizer",
    searchable=True,
  )
  learning_rate: float = config_lib.field(
    0.05, minimum=0, flag="client_learning_rate", searchable=True
  )
  momentum: float = config_lib.field(
    0.9, above=0, below=1, flag="client_momentum", searchable=True
  )
  schedule: str = config_lib.field(
    "constant",
    choices=SCHEDULES,
    flag="client_lr_schedule",
    searchable=True,
  )
  head_lr_scale: float = config_lib.field(10.0, minimum=0, searchable=True)
  head_warmup_steps: int = config_lib.field(0, minimum=0, searchable=True)
  freeze_head: bool = config_lib.field(False, searchable=True)
  head_imprint_steps: int = config_lib.field(0, minimum=0, searchable=True)
  epochs: int = config_lib.field(
    1, minimum=1, maximum=10_000, flag="local_epochs", searchable=True
  )
  batch_size: int = config_lib.field(
    32, minimum=1, maximum=_MAX_EXAMPLES, searchable=True
  )
  max_examples_per_client: int = config_lib.field(
    0, minimum=0, maximum=_MAX_EXAMPLES, searchable=True
  )
  turned_classes: bool = config_lib.field(False, searchable=True)
  augmentation: str = config_lib.field(
    "none", choices=augmentation_lib.AUGMENTATIONS, searchable=True
  )

  def check_head(self, head: heads.Head) -> None:
    """Checks that a head can start as `head_imprint_steps` asks.

    Args:
      head: The head that clients train.

    Raises:
      errors.FieldError: If rows are to be imprinted in a head that has no
        prototypes (`Head.has_prototypes`).
    """
    if self.head_imprint_steps and not head.has_prototypes:
      raise errors.FieldError(
        "head_imprint_steps",
        "be 0 for a head that is not trained on cosines",
        self.head_imprint_steps,
      )

  def check_images(
    self, task: str, image_shape: tuple[int, ...] | None
  ) -> None:
    """Checks that the images of a task can be augmented and turned as asked.

    Args:
      task: Name of the task, for an error.
      image_shape: Height, width and channels; None if its examples are not
        images.

    Raises:
      errors.FieldError: If examples that are not images are to be augmented or
        turned, or images that are not square are to be turned.
    """
    for name, value, allowed in (
      ("augmentation", self.augmentation, "none"),
      ("turned_classes", self.turned_classes, False),
    ):
      if value != allowed and image_shape is None:
        raise errors.FieldError(
          name,
          f"be {allowed} for task {task}, whose examples are no images",
          value,
        )
    if self.turned_classes and image_shape and image_shape[0] != image_shape[1]:
      raise errors.FieldError(
        "turned_classes",
        f"be False for task {task}, whose images are not square",
        f"images of {image_shape[0]}x{image_shape[1]}",
      )

  @property
  def classes_per_label(self) -> int:
    """Number of classes in training for each class of the data: 4 or 1."""
    return augmentation_lib.NUM_TURNS if self.turned_classes else 1

  def build_optimizer(
    self, learning_rate_scale: float = 1.0, factor: float | tf.Tensor = 1.0
  ) -> tff.learning.optimizers.Optimizer:
    """Builds the client optimizer.

    Args:
      learning_rate_scale: Multiplies the learning rate, 0 or more.
      factor: Multiplies it as well; may be a float32 scalar of a `tf.function`.

    Returns:
      TFF's SGD, SGD with momentum, or Adam, as `optimizer` says.
    """
    rate = self.learning_rate * learning_rate_scale * factor
    if self.optimizer == "adam":
      return tff.learning.optimizers.build_adam(rate)
    momentum = self.momentum if self.optimizer == "sgdm" else None
    return tff.learning.optimizers.build_sgdm(rate, momentum)

  def resolve(self, **options: Any) -> ClientTraining:
    """Adds the values that only a run knows.

    Args:
      **options: Attributes of `ClientTraining`, such as `rounds`.

    Returns:
      These settings with the options.

    Raises:
      errors.FieldError: See `ClientTraining`.
    """
    return ClientTraining(**(vars(self) | options))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClientTraining(LocalTraining):
  """Local training as clients of a run do it, on its data.

  Attributes:
    rounds: Rounds of the run; `None` if a constant learning rate does not need
      them.
    decode_images: Maps encoded images, string `[batch]`, to images `[batch,
      height, width, channels]`, if clients hold encoded images; else `None`.
    skip_unreadable: Whether examples whose image cannot be decoded are left out
      and counted, at the cost of decoding each once more, rather than fail the
      client.
    two_views: Whether a step uses two augmented copies of each image, first
      all first copies and then all second ones; the label of a copy is then the
      row of the other one.

  Raises:
    errors.FieldError: If images that stay encoded are to be turned, or the
      learning rate changes over an unknown number of rounds.
  """

  rounds: int | None = config_lib.field(None, minimum=1)
  decode_images: Callable[[Any], Any] | None = None
  skip_unreadable: bool = False
  two_views: bool = False

  def __post_init__(self):
    """Checks the fields against each other, see the class."""
    super().__post_init__()
    if self.turned_classes and self.decode_images is not None:
      raise errors.FieldError(
        "turned_classes",
        "be false where images stay encoded until they are trained on",
        True,
      )
    if self.rounds is None and SCHEDULES[self.schedule] is not None:
      must = f"be given for client_lr_schedule {self.schedule}"
      raise errors.FieldError("rounds", must, "nothing")

  def learning_rate_factor(self, round_num: tf.Tensor) -> tf.Tensor:
    """Computes the schedule's factor in a round.

    Args:
      round_num: The round, int32 scalar, from 0.

    Returns:
      A float32 scalar in [0, 1]; all schedules but constant are 0 after
      `rounds`.
    """
    factor = SCHEDULES[self.schedule]
    if factor is None:
      return tf.constant(1.0)
    assert self.rounds is not None
    progress = tf.cast(round_num, tf.float32) / self.rounds
    return factor(tf.minimum(progress, 1.0))
