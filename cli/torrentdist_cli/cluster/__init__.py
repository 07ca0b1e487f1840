"""The commands about the cluster as a whole."""
