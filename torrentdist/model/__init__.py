"""Values and errors. Imports nothing of ours; everything else may import this."""
