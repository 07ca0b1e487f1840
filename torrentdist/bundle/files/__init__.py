"""Files on disk: durable, copied cheaply, with their holes kept; errors of the disk."""
