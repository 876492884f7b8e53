"""Strategies: how the noise of one round is tied to that of the others.

Nothing here imports TensorFlow: planning a run must not wait for it.
"""
