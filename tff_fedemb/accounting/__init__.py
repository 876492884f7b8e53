"""The privacy cost of a run: from its rounds to epsilon.

Planning, records and report call this room; who takes part, and what may be
claimed for it, is `participation`.

* `composition`, to be read first, holds what is accounted for, and turns a
  mechanism's events and the participation into the events that an accountant
  is given; `epsilon` reads off epsilon and zCDP, and says where PLD is too
  slow. `gaussian_accountant` is the exact one, `monte_carlo` that of users
  whose rounds hang together; `pld_accountant` knows fixed cohorts, and what
  rounding leaves of deltas.
* `arithmetic` bounds what the noise's distance from a true Gaussian costs.
* `ledger` is the rounds as they happened; its report refuses an epsilon that
  the trace of who took part contradicts.
* `report` says what a run protects and what it cost, in numbers and words.
* `tuning` accounts for choosing among many runs.

Every epsilon is computed by `dp_accounting`, that of plain Gaussian mechanisms
also from its exact privacy loss; nothing here derives a privacy bound of its
own but the sensitivities (`participation`, `mechanisms`) and that of
`arithmetic`.
"""
