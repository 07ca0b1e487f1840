"""TLS in the swarm: torrents that only members can join, and their hash on the wire."""
