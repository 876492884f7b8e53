"""How users take part in a run: one class, in a file of its own, for each way.

`participation` is the base class: a participation says how it draws, what may
be claimed for it, and how the trace of a run is checked against the claim.
`registry` has them by name; `sampled` is what those that sample share.
"""
