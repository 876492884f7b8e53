"""The spec of a run that takes a second."""

import numpy as np

import tff_fedemb as fe

LABELS, USERS = np.arange(24) % 4, np.arange(24) // 3


def create():
  vectors = np.random.default_rng(0).normal(size=[24, 6]).astype(np.float32)
  test = vectors[:8], LABELS[:8]
  return fe.RunSpec(
    task=fe.ArrayTask(vectors, LABELS, USERS, test=test),
    algorithm=fe.FedEmb(
      backbone=fe.Backbone(backbone="dense", embedding_dim=4)
    ),
    participation=fe.Poisson(users_per_round=4),
    mechanism=fe.ClipOnly(clip_norm=0.3),
    rounds=1,
  )
