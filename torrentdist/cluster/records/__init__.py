"""The cluster's records: mirrored in memory, registered, backed up and restored."""
