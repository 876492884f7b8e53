"""Private classifiers on frozen features.

An embedding model is used by putting a linear classifier on top of it. The
methods here train one with differential privacy: first order, least squares,
Newton, and gradients preconditioned by a private covariance of the features.
"""
