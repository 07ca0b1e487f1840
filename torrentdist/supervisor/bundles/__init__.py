"""The bundles that this host keeps, and how their files are read.

The folder is small because this takes only a plan, a loop that carries it out, and a reader.
"""
