"""ZooKeeper: sessions, election, records and resource groups. Only one file imports kazoo.

The only module here is paths.py, which all folders below use.
"""
