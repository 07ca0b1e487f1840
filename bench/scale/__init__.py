"""Measurements beyond the lab: large fleets in a simulator, unlimited links, single settings."""
