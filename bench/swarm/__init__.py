"""Broadcasts in the lab: the cases, their runs and their pictures."""
