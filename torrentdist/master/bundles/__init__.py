"""Bundles on a master: uploads, replication, removal, and what the API shows of them."""
