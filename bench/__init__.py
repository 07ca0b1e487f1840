"""What is measured: ours against what our users would have otherwise, as ratios in one run. See `make bench`."""
