"""A host's bundles on disk: arriving, published, checked, and removed."""
