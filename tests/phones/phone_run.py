"""A run to be killed, with noise that two runs can share.

Run as a program: directory and runtime. Goes on from where it was killed.
"""

import sys

import tensorflow as tf

import tff_fedemb as fe
from tff_fedemb.mechanisms import secret_noise


def main(run_dir: str, runtime: str) -> None:
  """Trains twenty clients a round, for three rounds."""
  # As if the operating system gave all runs the same secret key.
  # Keys of later rounds are mixed into it: zeros change nothing.
  secret_noise.draw_key = lambda: [0, 0]
  secret_noise.draw_words = lambda shape: tf.zeros(shape, tf.int64)
  fe.train(
    fe.RunSpec(
      task=fe.create_task("handwriting", num_users=40),
      algorithm=fe.FedEmb(
        backbone=fe.Backbone(backbone="convnet_tanh"),
        local=fe.LocalTraining(learning_rate=0.1, batch_size=16),
      ),
      participation=fe.MinSeparation(users_per_round=20, min_separation=2),
      mechanism=fe.Blt(noise_multiplier=0.7, clip_norm=0.1),
      evaluation=fe.Evaluation(max_held_out_images=200),
      rounds=3,
      evaluate_every=0,
      checkpoint_every=3,
      sampling_seed=1,
      runtime=fe.Runtime(runtime=runtime),
    ),
    run_dir=run_dir,
  )


if __name__ == "__main__":
  main(*sys.argv[1:])
