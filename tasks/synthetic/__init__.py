"""Generators of small data sets in each benchmark's real on-disk format.

They stand in for the real files where those cannot be had: the same tables,
features and file names, so that whatever reads the real data reads these.
`python -m tasks.synthetic` writes one from the command line.
"""
