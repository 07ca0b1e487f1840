"""A package of somebody else with plug-ins for torrentdist. Tests put its parent directory on the
path."""
