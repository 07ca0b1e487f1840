"""The processes of workers: prepared, started, watched over, and their output."""
