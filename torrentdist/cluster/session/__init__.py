"""A ZooKeeper session on asyncio: the kazoo client, operations, access control, and a daemon's
first steps."""
