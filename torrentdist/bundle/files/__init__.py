"""Files on disk: durable writes, cheap copies, holes, and the errors of a disk."""
