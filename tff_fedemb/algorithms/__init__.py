"""Learning processes, one algorithm per file."""
