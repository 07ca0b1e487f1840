"""A directory as an immutable bundle: metafile, safe paths, and the store on disk. No network."""
