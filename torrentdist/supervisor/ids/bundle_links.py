"""Carries out link_plan.py: keeps the directory of ids as the bundles of this host are.

Always: a bundle is checked before it gets a link. A link that cannot be made holds up no other one.
Never: make a link to a bundle that this host must not use.
"""

import asyncio

from torrentdist.bundle.files.durability import disk_failures
from torrentdist.bundle.store.store import StoredBundle
from torrentdist.host.runtime import HostRuntime
from torrentdist.log import get_logger
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.supervisor.bundles.keeper import Keeper
from torrentdist.supervisor.ids.ids_directory import IdsDirectory
from torrentdist.supervisor.ids.leases import Leases
from torrentdist.supervisor.ids.link_plan import Action, HostLinks, PutLink, RemoveLink, plan_links

log = get_logger()

LOOK_SECS = 10.0
"""Longest time until a pin or the end of a lease shows."""


class BundleLinks:
    def __init__(self, directory: IdsDirectory, leases: Leases, runtime: HostRuntime, keeper: Keeper) -> None:
        self._directory = directory
        self._leases = leases
        self._runtime = runtime
        self._keeper = keeper
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        self._told: set[tuple[str, str]] = set()
        """Failures that were logged."""

    def poke(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self.update()
            try:
                async with asyncio.timeout(LOOK_SECS):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    async def update(self) -> None:
        """Puts the links right."""
        async with self._turn:
            failures = set()
            try:
                actions = plan_links(await self._state())
            except (OSError, TorrentdistError) as exc:
                actions, failures = [], {("the directory", str(exc))}
            for action in actions:
                if failure := await self._carry_out(action):
                    failures.add(failure)
            for name, detail in failures - self._told:
                log.warning("the link of a bundle is not right, will be retried", bundle=name, detail=detail)
            self._told = failures

    async def check(self, bundle: BundleId, target: str) -> None:
        """Raises `disk_error` if the link of a bundle does not lead there after an update."""
        with disk_failures(self._directory.path):
            links = await asyncio.to_thread(self._directory.links)
        if links.get(bundle) != target:
            reasons = [detail for name, detail in self._told if name in (bundle, "the directory")]
            why = reasons[0] if reasons else "it is not there yet"
            detail = f"the link of bundle {bundle!r} is not right: {why}"
            raise TorrentdistError("disk_error", path=str(self._directory.path), detail=detail)

    async def _state(self) -> HostLinks:
        keeper, store = self._keeper, self._runtime.store
        leased = await asyncio.to_thread(self._leases.held)
        present = await asyncio.to_thread(self._directory.links)
        here: dict[BundleId, str] = {}
        kept = set(keeper.assigned() | leased)
        # What a program uses is there for it after its removal, when nobody else finds it.
        for bundle, digest in {**self._leases.contents(), **store.bindings()}.items():
            stored = store.get(digest)
            if self._runtime.known.is_pinned(digest) or (stored is not None and stored.pinned):
                kept.add(bundle)
            if stored is not None and (bundle in kept or bundle in present) and await self._may_use(bundle, stored):
                here[bundle] = str(stored.content)
        return HostLinks(here=here, kept=frozenset(kept), present=present, knows_orders=keeper.knows_assignment)

    async def _may_use(self, bundle: BundleId, stored: StoredBundle) -> bool:
        try:
            await self._keeper.verify(bundle, stored.digest)
        except TorrentdistError:
            return False
        return True

    async def _carry_out(self, action: Action) -> tuple[str, str] | None:
        """Returns the name and the failure, or None."""
        try:
            match action:
                case RemoveLink(name):
                    await asyncio.to_thread(self._directory.remove, name)
                # One that is damaged is fetched again.
                case PutLink(bundle, target) if await self._keeper.checked(bundle) is not None:
                    await asyncio.to_thread(self._directory.put, bundle, target)
        except (OSError, TorrentdistError) as exc:
            return action.bundle if isinstance(action, PutLink) else action.name, str(exc)
        return None
