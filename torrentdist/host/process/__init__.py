"""The life of a daemon process: start, loops, watchdog, logs, stop."""
