"""Bundles from the client's side: upload, download, distribute."""
