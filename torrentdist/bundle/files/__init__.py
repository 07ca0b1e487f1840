"""Files on disk: made durable, copied cheaply, with their holes kept."""
