"""Broadcasts in the lab: cases, runs and pictures."""
