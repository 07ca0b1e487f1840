"""Which bundles this host keeps, and reading them.

A plan, the loop that carries it out and the reading of files: that is all, so the folder is small.
"""
