"""The files of a run: its directory, chain, checkpoints and cards.

Rounds and training write here; spec, report and serving read it. No format
depends on where a module lies.

Read `run_directory` first, which says what a run holds and to whom it belongs,
then `chain`, the append-only record of what happened. `release` says which
files may be given away, `model_card` what a model's card says. `checkpoints`
and `noise_keys` let a run go on, `sampling_key` decides who takes part,
`metrics` are those of the rounds, and `export` writes a SavedModel.
"""
