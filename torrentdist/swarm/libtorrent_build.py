"""Tells which libtorrent is installed, and the OpenSSL that its package carries.

A package of libtorrent holds an OpenSSL of its own, which no update of the system reaches.
Never: load libtorrent, which takes a while; the file is searched for what OpenSSL says of itself.
"""

import importlib.metadata
import importlib.util
import re
from pathlib import Path
from typing import Final

_OPENSSL: Final = re.compile(rb"OpenSSL (\d+\.\d+\.\d+[a-z]*) (\d+ \w{3} \d{4})")


def libtorrent_build() -> str:
    """Returns one line, such as `2.1.1, with OpenSSL 3.5.0 of 8 Apr 2025`."""
    found = importlib.util.find_spec("libtorrent")
    if found is None or found.origin is None:
        return "not installed"
    try:
        version = importlib.metadata.version("libtorrent")
    except importlib.metadata.PackageNotFoundError:
        version = "of the system"
    told = _OPENSSL.search(Path(found.origin).read_bytes())
    openssl = f"OpenSSL {told[1].decode()} of {told[2].decode()}" if told else "the system's OpenSSL"
    return f"{version}, with {openssl}"
