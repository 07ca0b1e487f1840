"""Compares torrentdist with its alternatives. Results are ratios within one run. `make bench` runs
it."""
