"""A host's bundles on disk: arriving, published, handed out, removed."""
