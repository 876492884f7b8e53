"""Deployments: devices that come and go, and a server that waits for them.

`spec.deployment` simulates a run's rounds here before they are trained.

* `deployment`, to be read first, reads a deployment from a file.
* `devices` has the laws of devices: when they are available, how fast they are,
  and when they are lost.
* `simulation` plays the rounds on a simulated clock.

The simulation decides who takes part and when. Participation `check_ins` makes
the claim about privacy.
"""
