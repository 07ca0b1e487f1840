"""The loopback gateway: bundles for the programs on this host, and what other hosts may read."""
