"""The commands about bundles."""
