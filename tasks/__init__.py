"""Benchmark tasks: data, model and splits, one file each.

`registry` names them for `fe.create_task` and flag `task`; each file has a
function `create_<name>_task` that reads the data. `task_config` has the options
that tasks share, `user_photos` and `numbered_users` what several tasks are made
of. `synthetic` writes made-up data in the formats of the real ones, and
`prepare` converts what publishers offer.
"""
