"""Identities: how the sender of a request is proven, and what it may do.

authorization.py decides. Never: I/O in a decision."""
