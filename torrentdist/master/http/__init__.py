"""The HTTP API of a master: routes, request ids, the API description."""
