"""The configuration: its keys, the sources of their values, and the rules for values."""
