"""A client's operations on bundles: upload, download, distribute."""
