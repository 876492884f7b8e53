"""Metrics of embeddings on held-out classes, and their pictures."""
