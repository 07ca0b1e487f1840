"""Signatures of bundles and jobs: keys, statements, which keys count for which ids, and what a
signed job runs."""
