"""Runs: planned, trained, tuned and audited.

`fe.train`, `fe.plan` and the programs that train call this room, the lowest of
the library: it imports from all others. It is not named `train`, as importing a
package of that name would put it where `fe.train` is.

Read `train` first, and `run`, one run from its checks to the files it leaves.
`plan` tells time, memory and cost before training. `tuning` trains many and
releases the best, `audit` trains with canaries, and `result` reads what a run
left. `models` has the model at its start and at its end.

`audit_settings` has the settings of audits, `handing_over` decides which model
a run hands over, and `search_space` draws hyperparameters.
"""
