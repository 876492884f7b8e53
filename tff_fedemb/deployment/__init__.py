"""Deployments: devices that come and go, and a server that waits for them.

`spec.deployment` plays a run's rounds by this room before they are trained.

* `deployment`, to be read first, is a deployment as it is written in a file.
* `devices` has the laws by which a user's device is there, fast or lost.
* `simulation` plays the rounds on a simulated clock.

The simulation decides who takes part and when. The claim about privacy is that
of participation `check_ins`.
"""
