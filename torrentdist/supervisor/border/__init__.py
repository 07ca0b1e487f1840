"""Fetching across the border of this host's zone, and giving pieces to hosts of other zones."""
