"""Measurements: ours against what users would have otherwise, as ratios within one run. See `make
bench`."""
