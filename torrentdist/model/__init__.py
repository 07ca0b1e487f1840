"""Values and errors. This package imports nothing of ours; everything else may import it."""
