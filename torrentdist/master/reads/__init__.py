"""What a master answers reads from, and how old that is."""
