"""Command line programs; the only place with flags."""
