"""The supervisor daemon: keeps bundles on a host, runs workers, and serves the loopback gateway."""
