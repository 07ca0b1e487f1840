"""The commands that run and configure daemons on this host."""
