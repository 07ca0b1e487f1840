"""What is told of the installed libtorrent."""

from __future__ import annotations

import re

import libtorrent

from torrentdist.swarm.libtorrent_build import libtorrent_build


def test_the_openssl_of_libtorrents_package_is_named() -> None:
    """An operator could not tell whether an advisory on OpenSSL concerns the swarm."""
    told = libtorrent_build()

    assert told.startswith(libtorrent.__version__.rpartition(".0")[0] or libtorrent.__version__)
    assert re.search(r", with (OpenSSL \d+\.\d+\.\d+\w* of \d+ \w+ \d{4}|the system's OpenSSL)$", told)
