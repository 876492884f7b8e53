"""Private classifiers on features, for each user: federated computations."""
