"""Container images: their names, their layouts, and their layers."""
