"""What a run costs in privacy: accounting, the ledger and planning.

Who takes part, and what may be claimed for it, is `participation`.

* `composition` holds what is accounted for, and turns a mechanism's events and
  the participation into the events that an accountant is given; `epsilon` reads
  off epsilon and zCDP, and says where PLD is too slow. `gaussian_accountant` is
  the exact one, `monte_carlo` that of users whose rounds hang together;
  `pld_accountant` knows fixed cohorts, and what rounding leaves of deltas.
* `arithmetic` bounds what the noise's distance from a true Gaussian costs.
* `report` says what a run protects and what it cost, in numbers and words.
* `ledger` is the rounds as they happened; its report refuses an epsilon that
  the trace of who took part contradicts.
* `planning` says what a run would cost, `calibration` how much noise or how
  many users it takes, `mechanism_choice` which mechanism makes the least noise,
  and `extrapolation` what a simulated run would cost with a larger population
  and cohort; `published` is the authors' table.
* `tuning` accounts for choosing among many runs.
* `audit` attacks what is claimed, and bounds epsilon from below.

Every epsilon is computed by `dp_accounting`, that of plain Gaussian mechanisms
also from its exact privacy loss; nothing here derives a privacy bound of its
own but the sensitivities (`participation`, `strategies`) and that of
`arithmetic`.
"""
