"""How users take part in a run: one class, in a file of its own, for each way.

A `RunSpec` holds a participation, a run draws its rounds by it, and accounting
asks it what may be claimed.

* `participation`, to be read first, is the base class: a participation says how
  it draws, what may be claimed for it, and how the trace of a run is checked
  against the claim.
* `registry` has the participations by name; `sampled` is the base class of
  those that sample.
* `participation_trace` is the record on disk of who took part, in which
  `participation_check` counts how often users did.
"""
