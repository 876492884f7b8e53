"""A run: what was asked for, what it costs, and what came of it."""
