"""How good embeddings are on held-out classes: metrics and their pictures."""
