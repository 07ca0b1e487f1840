"""What a host has already of a bundle that arrives: which files are known, where, and how they are
taken over."""
