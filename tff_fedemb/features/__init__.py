"""Private classifiers on frozen features.

An embedding model is used by putting a linear classifier on top of it. The
methods here train one with differential privacy: first order, least squares,
Newton, and gradients preconditioned by a private covariance of the features.
The programs `extract_features`, `classify_features` and `sweep_features` call
this room.

Read `classifier` first, which has the interface of scikit-learn's estimators,
then `method`, the contract of a method, and `least_squares`, one of them. A fit
reaches data only through `noise`. `federated` has fits that protect users.
"""
