"""What the shell and its user ask for: completions, and help about topics."""
