"""Verifies the signatures of this host's bundles against the keys in its own configuration.

Always: a signature that was good is kept on this disk, so that neither masters nor ZooKeeper are
needed to use the bundle again. Nothing that a master says is believed without one.
Never: decide what happens to a bundle that is refused; callers get an error.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from torrentdist.bundle.files.durability import remove_begun, write_durably
from torrentdist.log import get_logger
from torrentdist.model.access.envelope import Envelope, SigningKeyText
from torrentdist.model.configuration.config import TrustConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.view import decode_json
from torrentdist.security.signing.signatures import BundleStatement, check_bundle
from torrentdist.security.signing.trust import TrustMode, trust_in

log = get_logger()

Accept = Callable[[Sequence[Envelope]], object]
"""Raises an error unless one of these signatures is right."""
Ask = Callable[[BundleId, Accept], Awaitable[tuple[Envelope, ...]]]
"""Returns the signatures that a master has of a bundle, from the first master whose signatures are
accepted."""


class BundleSignatures:
    """The rules are those of the configuration at the start, which the log names."""

    def __init__(self, trust: TrustConfig, folder: Path, ask: Ask) -> None:
        if trust.bundles:
            rules = {pattern: f"{rule.mode}, {len(rule.keys)} keys" for pattern, rule in trust.bundles.items()}
            log.info("signatures are checked by [trust] as it is now; a change needs a restart", rules=rules)
        self._trust = trust
        self._folder = folder
        with suppress(OSError):  # There is none before the first signature.
            remove_begun(folder)
        self._ask = ask
        self._judged: dict[BundleId, tuple[Digest, tuple[Envelope, ...]]] = {}
        """Contents that may be used under these ids while this process lives."""

    async def check(self, bundle: BundleId, digest: Digest) -> None:
        """Raises an error if this content must not be used under this id."""
        judged = self._judged.get(bundle)
        if judged is not None and judged[0] == digest:
            return
        rule = trust_in(self._trust, bundle)
        if rule.mode is TrustMode.OFF:
            return
        try:
            found = await self._verified(bundle, digest, rule.keys)
        except TorrentdistError as error:
            if rule.mode is TrustMode.ENFORCE:
                raise
            found = ()
            log.warning("a bundle is used although its signature is not right", bundle=bundle, reason=error.message)
        self._judged[bundle] = digest, found

    def of(self, bundle: BundleId) -> list[Envelope]:
        """Returns the signatures of a bundle that was checked, if they were looked at."""
        return list(self._judged[bundle][1]) if bundle in self._judged else []

    def forget(self, bundles: Collection[BundleId]) -> None:
        """Forgets removed bundles. Blocks."""
        for bundle in bundles:
            self._judged.pop(bundle, None)
            self._file(bundle).unlink(missing_ok=True)

    async def _verified(self, bundle: BundleId, digest: Digest, keys: Sequence[SigningKeyText]) -> tuple[Envelope, ...]:
        wanted = BundleStatement(cluster=self._trust.cluster, id=bundle, digest=digest)
        kept = await asyncio.to_thread(self._good_on_disk, wanted, keys)
        if kept:
            return kept
        found = await self._ask(bundle, lambda told: check_bundle(told, wanted, keys))
        await asyncio.to_thread(self._keep, bundle, found)
        return found

    def _good_on_disk(self, wanted: BundleStatement, keys: Sequence[SigningKeyText]) -> tuple[Envelope, ...]:
        try:
            kept = decode_json(self._file(wanted.id).read_bytes(), tuple[Envelope, ...])
            check_bundle(kept, wanted, keys)
        except (OSError, msgspec.MsgspecError, TorrentdistError):  # a master may know better ones
            return ()
        return kept

    def _keep(self, bundle: BundleId, found: tuple[Envelope, ...]) -> None:
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            write_durably(self._file(bundle), msgspec.json.encode(found))
        except OSError as error:  # It is asked for again after a restart.
            log.warning("cannot keep a bundle's signatures", bundle=bundle, reason=str(error))

    def _file(self, bundle: BundleId) -> Path:
        return self._folder / f"{bundle}.json"
