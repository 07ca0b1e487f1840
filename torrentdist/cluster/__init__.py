"""ZooKeeper: sessions, election, records and resource groups. kazoo is imported in one file only.

Only paths.py lies here; the rooms below use it.
"""
