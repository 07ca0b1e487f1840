"""Small files travel together in packs: which ones, in which order, and how they are written."""
