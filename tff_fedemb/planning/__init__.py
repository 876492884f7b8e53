"""The privacy cost of a run, and settings for a target, before it begins.

A `RunSpec` is resolved and planned with this room, and program `account` is a
door to each of its files.

Read `planning` first: the cost of a planned run. `calibration` says how much
noise or how many users a target takes, and `mechanism_choice` which mechanism
makes the least noise. `extrapolation` says what a simulated run would cost with
a larger population and cohort; `published` is the authors' table. `budget` is
shared by several runs on the same users, `budget_composition` what they cost.
"""
