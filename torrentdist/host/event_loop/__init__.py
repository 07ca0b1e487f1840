"""Watches over a daemon's event loop: it is quick to answer, or the process ends."""
