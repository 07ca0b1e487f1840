"""Measurements for Spark users: the delivery of archives, and the report."""
