"""The console: pages under /ui/ that show people what the API tells programs."""
