"""The supervisor daemon: a host's store, its part in the swarms, the loopback gateway."""
