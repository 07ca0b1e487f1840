"""Clients of httpx share one TLS context unless they say whom to trust.

Each would read the certificates of all authorities: 35 ms of processor time for every request
without a client of its own, even where nobody speaks TLS.
"""

from __future__ import annotations

import ssl
from functools import cache
from typing import Any

from httpx._transports import default as transports

_new_context = transports.create_ssl_context


@cache
def _public_authorities(trust_env: bool) -> ssl.SSLContext:
    return _new_context(True, None, trust_env)


def _context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    shared = verify is True and cert is None
    return _public_authorities(trust_env) if shared else _new_context(verify, cert, trust_env)


transports.create_ssl_context = _context
