"""Requests to the masters: which master to ask, how long to wait, and how old an answer is."""
