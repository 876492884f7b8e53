"""A task that is none of images: sequences, where a class is a made-up speaker.

A speaker has a pitch and a timbre; recordings differ in phases and noise.
docs/extending.md has the command.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tff_fedemb import config
from tff_fedemb.spec import array_task
from tff_fedemb.spec import task as task_lib

_LENGTH, _NUM_OVERTONES = 64, 4
_NUM_HELD_OUT, _NUM_RECORDINGS = 200, 8


def _record(speakers: np.ndarray, seed: int) -> np.ndarray:
  """Recordings `[n, time, 1]`, one of each speaker in `[n]`."""
  random = np.random.default_rng(0)
  habits = random.uniform(0.03, 0.12, 10_000), random.normal(size=(10_000, 4))
  pitch, timbre = (habit[speakers] for habit in habits)
  random = np.random.default_rng(seed)
  pitch = pitch * random.normal(1, 0.02, len(speakers))
  loudness = np.exp(timbre + random.normal(0, 0.2, timbre.shape))
  overtones = np.arange(1, 1 + _NUM_OVERTONES)[:, np.newaxis]
  cycles = pitch[:, np.newaxis, np.newaxis] * overtones * np.arange(_LENGTH)
  cycles += random.uniform(size=(*timbre.shape, 1))
  waves = loudness[..., np.newaxis] * np.sin(2 * np.pi * cycles)
  voices = waves.sum(axis=1) + random.normal(0, 0.3, (len(speakers), _LENGTH))
  return voices[..., np.newaxis]


@dataclasses.dataclass(frozen=True)
class Voices(task_lib.TaskSource):
  """Speakers who train, and 200 others who are held out.

  Attributes:
    speakers: Number of speakers who train.
  """

  speakers: int = config.field(1_000, minimum=2, maximum=9_800)

  def create(self) -> task_lib.Task:
    train, test = (
      np.repeat(np.arange(first, first + number), _NUM_RECORDINGS)
      for first, number in ((_NUM_HELD_OUT, self.speakers), (0, _NUM_HELD_OUT))
    )
    return array_task.ArrayTask(
      _record(train, 1),
      train,
      train,
      test=(_record(test, 2), test),
      held_out_users=True,
      name="voices",
      user_meaning="a speaker",
    ).create()
