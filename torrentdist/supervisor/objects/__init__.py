"""Bundles as buckets of S3, for programs that know nothing of torrentdist."""
