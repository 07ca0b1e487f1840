"""Talking to the masters: which one to ask, how long to wait, how old an answer is."""
