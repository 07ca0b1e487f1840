"""The configuration: its keys, where values come from, and what they must satisfy."""
