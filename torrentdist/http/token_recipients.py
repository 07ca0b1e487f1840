"""Decides which servers get our token over plain HTTP: those that we were told of, and those that
prove that they know it.

Always: a server that only an answer named gets the token after its proof, or never. Over https the
certificate is the proof, which access.py demands.
"""

import os
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from torrentdist.http.http_values import Answer, HttpError, InvalidUrl, Origin, origin_of

PATH: Final = "/v1/proof"
PROOF_SECS: Final = 1.0
MOST_PROOF_BYTES: Final = 4096


class AnonymousRequest(Protocol):
    """Sends a GET without credentials."""

    async def __call__(self, url: str, params: dict[str, str], most_bytes: int) -> Answer: ...


class TokenRecipients:
    """`told` returns the URLs of the servers that the configuration or ZooKeeper names."""

    def __init__(self, token: str, told: Callable[[], Iterable[str]]) -> None:
        self._token = token
        self._told = told
        self._proven: set[Origin] = set()

    async def admit(self, origin: Origin, get: AnonymousRequest) -> bool:
        """Whether this server may have the token. Asks it for a proof if need be."""
        if origin.scheme == "https" or origin in self._proven or origin in frozenset(origins_of(self._told())):
            return True
        from torrentdist.security.master_proof import name_and_key, proves  # which few commands need

        name_and_its_key = name_and_key(self._token)
        if name_and_its_key is None:
            return False
        name, key = name_and_its_key
        url, nonce = url_of(origin), os.urandom(16).hex()
        try:
            answer = await get(url + PATH, {"name": name, "nonce": nonce, "url": url}, MOST_PROOF_BYTES)
        except HttpError:
            return False
        given = answer.content.decode("ascii", "replace")
        if answer.status_code != 200 or not proves(given, key, nonce, url):
            return False
        self._proven.add(origin)
        return True


def origins_of(urls: Iterable[str]) -> Iterable[Origin]:
    """Returns the servers that these URLs name. A URL that cannot be used names none."""
    for url in urls:
        try:
            yield origin_of(url)
        except InvalidUrl:
            continue


def url_of(origin: Origin) -> str:
    """Returns the one spelling of a server's URL that its proof is for."""
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    return f"{origin.scheme}://{host}:{origin.port}"
