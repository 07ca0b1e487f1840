"""The master daemon: API, replication, lifecycle."""
