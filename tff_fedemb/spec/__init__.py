"""The definition of a run: its spec, its task, and what follows from them.

Programs and `fe.train`, `fe.plan` and their like begin here.

Read `spec` first: `RunSpec`, one frozen object that is written to `run.json`.
`task` is what a run trains on, `array_task` one from arrays at hand.
`run_cost` settles a spec for a number of users: who takes part, and what it
costs. `experiment` is a spec whose task is at hand: what is built and trained.
`deployment` plays its rounds on devices that come and go, and
`suggestions` settles what counts of photos decide.
"""
