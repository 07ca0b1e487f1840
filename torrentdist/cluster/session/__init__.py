"""A ZooKeeper session on asyncio: the kazoo client, operations, access rights, arrival in a
cluster."""
