"""The privacy cost of a run: from its rounds to epsilon.

Planning, records and report call this room; who takes part, and what may be
claimed for it, is `participation`.

* `composition`, to be read first, holds what is accounted for, and turns a
  mechanism's events and the participation into the events that an accountant
  is given; `epsilon` reads off epsilon and zCDP, and says where PLD is too
  slow.
* `ledger` is the rounds as they happened; its report refuses an epsilon that
  the trace of who took part contradicts.
* `report` says what a run protects and what it cost, in numbers and words.
* `tuning` accounts for choosing among many runs.

Where `dp_accounting` knows the event of a round, it computes the cost: that of
Gaussian mechanisms, Poisson sampling, and fixed cohorts by RDP. The other
modules derive bounds of their own. Each names its source or has the proof:

* `gaussian_accountant`: the exact cost of Gaussian mechanisms;
* `pld_accountant`: the losses of a fixed cohort, and how much rounding may take
  from any delta;
* `random_allocation` and `random_allocation_rdp`: a bracket of the losses of
  random allocation, and its Renyi divergences;
* `monte_carlo` and `balls_in_bins`: Monte-Carlo bounds for users whose rounds
  depend on each other;
* `arithmetic`: the cost of noise that is not exactly Gaussian.

`participation` and `mechanisms` derive the sensitivities.
"""
