"""The command line: a thin shell over torrentdist.client."""
