"""Bundles from the objects of a storage such as S3: what is there, its hashes, and its upload
without a copy of the whole."""
