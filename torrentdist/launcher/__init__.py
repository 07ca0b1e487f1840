"""The launcher of a host: it starts each run of a worker in namespaces of its own, and the run ends
with its lease."""
