"""Which peer fetches which piece first, and who connects to whom. Pure."""
