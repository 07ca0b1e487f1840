"""A third party's package of plug-ins for torrentdist. Tests put its parent directory on the
path."""
