"""Ensures that no worker runs twice: barriers, leases, and proofs that allow running without
ZooKeeper."""
