"""How users take part in a run: one class, in a file of its own, for each way.

A `RunSpec` holds one, a run draws its rounds by it, and accounting asks it what
may be claimed. The record on disk of who took part is `participation_trace`,
and `participation_check` counts there how often users took part.

Read `participation` first, the base class: a participation says how it draws,
what may be claimed for it, and how the trace of a run is checked against the
claim. `registry` has them by name; `sampled` is what those that sample share.
"""
