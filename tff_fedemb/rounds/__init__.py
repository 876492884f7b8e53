"""The loop of a training run: rounds, evaluation, ledger, checkpoints, resume.

`training.train` runs it with a learning process and a runtime, and a `RunSpec`
has its settings, which is why the room is above `spec`.

Read `loop` first. A round is written to the chain of `records` before
its model is used. The loop knows neither flags nor tasks: it is given
functions that draw users and evaluate.
"""
