"""Running a daemon process: start, loops, logs, and stop."""
