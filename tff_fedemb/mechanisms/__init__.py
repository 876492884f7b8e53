"""Mechanisms: how updates are clipped and summed, and what noise is added.

Algorithms take the aggregator of a mechanism, accounting takes its event, and
`tff_aggregator` gives the aggregator to TFF's own processes.

Read `mechanism` first, the base class, then `gaussian`, the simplest. One file
has one mechanism, and `registry` has them by name. `secret_noise` makes all
noise; `exact_sums` has sums that do not round. Correlated noise follows a
matrix: `strategy` is the base class of matrices, `banded_strategy`,
`blt_strategy` and `tree_strategy` are the matrices of the mechanisms `banded`,
`blt` and `tree`, and `strategies` has them by name. None of the files of
matrices imports TensorFlow: planning a run must not wait for it.
"""
