"""Clients of httpx share one TLS context unless they say whom to trust.

Each would read the certificates of all authorities: 35 ms of processor time for every request
without a client of its own, even where nobody speaks TLS.
"""

from __future__ import annotations

import ssl
from functools import cache
from importlib import import_module
from typing import Any

transports: Any = import_module("httpx._transports.default")
_new_context = transports.create_ssl_context


@cache
def _public_authorities(trust_env: bool) -> ssl.SSLContext:
    context: ssl.SSLContext = _new_context(True, None, trust_env)
    return context


def _context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    shared = verify is True and cert is None
    if shared:
        return _public_authorities(trust_env)
    context: ssl.SSLContext = _new_context(verify, cert, trust_env)
    return context


transports.create_ssl_context = _context
