"""The certificates of a daemon: kept good while it runs, and those of others that were revoked."""
