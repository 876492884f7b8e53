"""The training program: run directory, checkpoints, metrics, export, loop."""
