"""Tokens, the sender's own identity, and the audit, at a master."""
