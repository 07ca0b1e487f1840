"""The bundles of this host by their ids, as paths that are the same on all hosts, and the leases of
the programs that use them."""
