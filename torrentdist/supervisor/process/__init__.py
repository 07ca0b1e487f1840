"""The processes of workers: prepared, started, waited for, and their output."""
