"""The HTTP server that both daemons run: sockets, answers, authentication, files."""
