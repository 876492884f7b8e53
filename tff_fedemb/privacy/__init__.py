"""What a run costs in privacy: accounting, the ledger and extrapolation.

* `accounting` turns one round's mechanism and the way users take part into the
  event that an accountant is given, with every assumption named.
* `epsilon` composes such events and reads off epsilon.
* `report` says what a run protects and what it cost, in numbers and words.
* `ledger` records the rounds as they happen and travels in the checkpoint.
* `composition` turns the rounds of a run into what an accountant is given.
* `trace_check` refuses a claim that the trace of a run refutes.
* `planning`, `calibration` and `published` say what a run would cost, what it
  takes for a target, and what the authors' table assumes.
* `cache` keeps answers on disk.
* `extrapolation` says what a simulated run would cost with a larger
  population and cohort.

Every epsilon is computed by `dp_accounting`; nothing here derives a privacy
bound of its own.
"""
