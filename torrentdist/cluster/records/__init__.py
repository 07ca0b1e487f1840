"""The cluster's records: registering them, mirroring them in memory, backup and restore."""
