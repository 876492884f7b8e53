"""What a run costs in privacy: accounting, the ledger and planning.

* `accounting` says who takes part and what may be claimed for it.
* `composition` turns a mechanism's events and the participation into the events
  that an accountant is given; `epsilon` reads off epsilon and zCDP.
* `report` says what a run protects and what it cost, in numbers and words.
* `ledger` records the rounds as they happen and travels in the checkpoint;
  its report refuses an epsilon that the record of who took part refutes.
* `planning`, `calibration` and `extrapolation` answer what a run would cost,
  how much noise or how many users it takes, and what a simulated run would cost
  with a larger population and cohort; `published` is the authors' table.
* `tuning` accounts for choosing among many runs; `cache` keeps answers on disk.

Every epsilon is computed by `dp_accounting`, that of plain Gaussian mechanisms
also from its exact privacy loss; nothing here derives a privacy bound of its
own but the sensitivities (`accounting`, `strategies`).
"""
