"""A directory as an immutable bundle: manifest, metafile, safe paths, the store on disk. No network."""
