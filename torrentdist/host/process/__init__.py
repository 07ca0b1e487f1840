"""Running a daemon process: start, loops, watchdog, logs, and stop."""
