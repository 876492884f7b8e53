"""The files of a run: its directory, chain, checkpoints and cards.

Rounds and training write here; spec, report and serving read it. No format
depends on where a module lies.

Read `run_directory` first, which says what a run holds and to whom it belongs,
then `chain`, the append-only record of what happened. `release` says which
files may be given away, `model_card` what a model's card says. `checkpoints`
and `noise_keys` let a run go on, `sampling_key` decides who takes part,
`metrics` are those of the rounds, and `export` writes a SavedModel.

`kept_model` keeps the best of the evaluated models until the end,
`output_files` checks and writes the files that a program was asked for,
`canonical_names` removes from an exported model what its process left in it,
and `storage` runs TFF's asynchronous managers.
"""
