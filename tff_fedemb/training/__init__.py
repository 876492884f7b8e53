"""Runs: planned, trained, tuned and audited."""
