"""Changes from the console, and the pages of retention rules, tokens and certificates."""
