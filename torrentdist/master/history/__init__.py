"""What happened to past distributions: followed while they run, kept on disk by every master."""
