"""Bundles on a master: how they come in, are copied to other masters, are shown and removed."""
