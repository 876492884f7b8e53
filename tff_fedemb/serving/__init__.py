"""Exported models in use: evaluated, matched, converted."""
