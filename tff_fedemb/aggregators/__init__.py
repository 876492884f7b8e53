"""Aggregators: one factory per differentially private mechanism."""
