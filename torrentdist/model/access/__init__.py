"""Tokens and the audit as values: records, requests and views."""
