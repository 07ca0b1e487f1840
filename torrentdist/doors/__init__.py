"""Doors for programs that know nothing of torrentdist: an fsspec file system."""
