"""The processes of workers: preparing, starting and following them, and reading their output."""
