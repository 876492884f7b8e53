"""The privacy cost of a planned run, and the settings that meet a target.

A `RunSpec` is resolved and planned with this package. Program `account` gives
access to each of its files.

Read `planning` first: the cost of a planned run. `calibration` finds the noise
or the number of users that a target needs, and `mechanism_choice` the mechanism
with the least noise. `extrapolation` computes the cost of a simulated run with
a larger population and cohort; `published` is the authors' table. `budget` is a
budget that several runs on the same users share, `budget_composition` their
cost together.
"""
