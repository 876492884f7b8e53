"""Private classifiers on features whose unit is a user: federated computations.

Read `rounds` first, which runs a fit; `statistics` has what clients send.
"""
