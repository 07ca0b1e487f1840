"""Starts the workers of a host, each run in namespaces of its own, and ends them when their lease is over."""
