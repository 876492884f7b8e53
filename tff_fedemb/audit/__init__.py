"""Attacks on a guarantee: how much privacy is lost at least, measured.

An epsilon that is claimed is an upper bound that rests on proofs and on code.
Here canaries are included in a computation or not, by a fair coin each, and are
scored by what it publishes. How well the scores tell both kinds apart bounds
epsilon from below; a lower bound above the claim refutes it. `training.audit`
calls this room.

* `scores`, to be read first, holds the scores of both kinds, says how well they
  tell members from others, and holds the bound that comes out.
* `clopper_pearson`, `one_run` and `trade_off` hold methods that bound;
  `registry` has them by name, each with what it assumes.
* `canary_updates` makes clients who send a direction of their own in place of
  an update, and scores what a model released of them.
"""
