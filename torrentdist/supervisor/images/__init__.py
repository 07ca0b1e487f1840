"""Container images as bundles, for runtimes that know nothing of torrentdist."""
