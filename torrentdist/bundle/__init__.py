"""A directory as an immutable bundle: metafile, safe paths, the store on disk. No network."""
