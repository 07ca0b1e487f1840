"""A torrentdist plug-in."""
