"""Benchmark tasks: data, model and splits, one file each."""
