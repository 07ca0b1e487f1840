"""Carries out keeping_plan.py: makes this host's store contain the bundles that it should keep.

Always: there is at most one fetch per bundle. A failed fetch is retried after increasing pauses for
as long as the bundle is wanted. A local user who requested a bundle learns of its success or
failure.
Longer than most files: fetches and the plan's other actions share one table.
"""

import asyncio
import math
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import NamedTuple

import msgspec

from torrentdist.bundle.files.durability import as_failure
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.store.store import KeepReason, StoredBundle
from torrentdist.host.host_parts import AT_ONCE
from torrentdist.host.process.host_daemon import HostDaemon
from torrentdist.log import get_logger
from torrentdist.model.backoff import pause_secs, secs_until_retry
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.policies.bundle_terms import ANY_TERMS, BundleTerms
from torrentdist.model.removals import removal_mark
from torrentdist.model.wire.fleet_messages import HostBundleView, HostState
from torrentdist.model.wire.transfer_messages import TransferView
from torrentdist.supervisor.bundles import keeping_plan
from torrentdist.supervisor.bundles.bundle_signatures import BundleSignatures
from torrentdist.supervisor.bundles.forgetting import NO_MASTER, Forgetting
from torrentdist.supervisor.bundles.holds import Holds
from torrentdist.supervisor.bundles.keeping_plan import (
    BeginSeeding,
    CancelFetch,
    DropArrival,
    DropBundle,
    FetchBundle,
    StopSeeding,
)

log = get_logger()

LOOK_SECS = 10.0
"""Longest time between two rounds."""
MOST_FAILURES = 500
"""Failures that are remembered of bundles that are not assigned to this host."""
GIVE_UP_SECS = 10.0
"""How long a fetch that is given up may take to end."""
GIVEN_AGAIN_SECS = 10.0
"""How long masters may go on calling content removed that was uploaded again: as long as the
slowest of them takes to hear of the upload."""


class _Given(NamedTuple):
    """When (monotonic) a master gave some content, and by which transaction; 0 if unknown."""

    at: float
    zxid: int


class _Failure(NamedTuple):
    """Why the last fetch failed, and when it had begun to ask masters (monotonic)."""

    error: TorrentdistError
    asked_at: float


class Keeper:
    def __init__(self, host: HostDaemon, signatures: BundleSignatures, seed_secs: float) -> None:
        self._signatures = signatures
        self._runtime = host.runtime
        self._hand_outs = host.hand_outs
        self._links = host.links
        self._plain_metafile = host.joins_uploads
        self._tell_masters = host.agent.poke
        self._seed_secs = seed_secs
        self.holds = Holds(host.runtime.store.data_dir, self._holds_changed)
        self._told: frozenset[BundleId] = frozenset()
        """Bundles that the assignment names."""
        self._needed: frozenset[BundleId] = frozenset()
        """Bundles that the workers of this host need."""
        self._assigned: frozenset[BundleId] = frozenset()
        """Both of these, and what is held here and was not removed."""
        self._terms: Mapping[BundleId, BundleTerms] = {}
        self.knows_assignment = False
        """Whether ZooKeeper has said since the start what this host was told to keep. Until then no
        bundle may go."""
        self._requested: set[BundleId] = set()
        self._removed: set[Digest] = set()
        """Contents that masters call removed."""
        self._unknown: set[Digest] = set()
        """Contents that no master has a record of."""
        self._given: dict[Digest, _Given] = {}  # contents that a master gave a moment ago
        self._forgetting = Forgetting(host, signatures)
        self._marks: frozenset[str] = frozenset()  # of the removals that were heard last
        self._fetches: dict[BundleId, asyncio.Task[None]] = {}
        self._contents: dict[BundleId, Digest] = {}
        """The content of each bundle that is fetched, once it is known. It has its id only after
        there is room for it."""
        self._failures: dict[BundleId, int] = {}
        self._errors: dict[BundleId, _Failure] = {}
        self._not_before: dict[BundleId, float] = {}
        self._unwanted: dict[Digest, float] = {}
        """Bundles that have arrived in part, each with when it was first seen that nobody wants it
        (monotonic)."""
        self._lacks_room = False
        """Whether a fetch has found no room since the last plan."""
        self._undone: set[keeping_plan.Action] = set()
        """Actions that failed and will be retried. Each failure is logged once."""
        self._wake = asyncio.Event()
        self._changed = asyncio.Condition()
        self.is_leased: Callable[[BundleId], bool] = lambda bundle: False
        """Whether a program of this host uses a bundle. Called in any thread."""
        self.leased_digests: Callable[[], frozenset[Digest]] = frozenset
        """Returns the contents that programs use, removed ones too."""
        self.is_content_leased: Callable[[Digest], bool] = lambda digest: False
        """Whether a program uses this content. Called in any thread."""
        self.after_round: Callable[[], None] = lambda: None

    async def open(self) -> None:
        """Reads what an earlier process held here. Until then, nothing may be removed."""
        await asyncio.to_thread(self.holds.load)
        await self._forgetting.open()
        self._assign()

    def assign(self, bundles: frozenset[BundleId], terms: Mapping[BundleId, BundleTerms]) -> None:
        """Sets which bundles the assignment names, and how this host fetches some of them."""
        self._told, self._terms = bundles, terms
        self._assign()

    def need(self, bundles: frozenset[BundleId]) -> None:
        """Sets which bundles the workers of this host need."""
        if bundles != self._needed:
            self._needed = bundles
            self._assign()

    def _assign(self) -> None:
        holds, store = self.holds.all().values(), self._runtime.store
        held = {hold.bundle for hold in holds if store.lookup(hold.bundle) == hold.digest}
        before, self._assigned = self._assigned, self._told | self._needed | held
        if before - self._assigned:
            self._tell_masters()  # They may have been removed: the swarm directory knows.
        for bundle in self._fetches:
            if (digest := self._runtime.store.lookup(bundle)) is not None:
                self._limit(bundle, digest)
        self._wake.set()

    def _holds_changed(self) -> None:
        self._assign()
        self._tell_masters(AT_ONCE)

    def _limit(self, bundle: BundleId, digest: Digest) -> None:
        """Limits a fetch as the assignment says. Neither a local user nor a worker waits for a
        limit."""
        waits, terms = bundle in self._requested | self._needed, self._terms.get(bundle, ANY_TERMS)
        self._runtime.transfers.limit(digest, 0 if waits else terms.rate)

    def poke(self) -> None:
        self._wake.set()

    def hear_removed(self, said: Mapping[Digest, int]) -> None:
        """Sets which contents masters call removed, each with the newest transaction that these
        masters have seen. What a master has just given was uploaded again: older answers must not
        end its fetch."""
        recent = time.monotonic() - GIVEN_AGAIN_SECS
        self._given = {d: given for d, given in self._given.items() if given.at > recent and (given.zxid or d in said)}
        removed = {digest for digest, zxid in said.items() if not self._is_older(digest, zxid)}
        if removed - self._removed:
            self._wake.set()
        self._removed = removed

    def hear_unknown(self, said: Set[Digest]) -> None:
        """Sets which contents no master has a record of. An id of one may stand for another content
        by now: this host was away when the first was removed."""
        if said - self._unknown:
            self._wake.set()
        self._unknown = set(said)

    def _is_older(self, digest: Digest, zxid: int) -> bool:
        """Whether the masters that call this content removed may not know yet that it was uploaded
        again."""
        given = self._given.get(digest)
        return given is not None and (given.zxid == 0 or zxid < given.zxid)

    def hear_given(self, digest: Digest, zxid: int = 0) -> None:
        """Notes that a master knows a bundle of this content now, whatever older answers say.
        `zxid`: the newest transaction that this master had seen; 0 if it is not known."""
        if zxid or digest in self._removed:
            self._given[digest] = _Given(time.monotonic(), zxid)
        if digest in self._removed:
            self._removed.discard(digest)
            self._tell_masters()  # Their next answer says that it is not removed any more.

    async def hear_removals(self, marks: Sequence[str]) -> None:
        """Forgets the ids of the bundles that were removed, so that nobody is given them any more.
        Their content goes once a master says so. `marks`: the newest removals."""
        new, self._marks = frozenset(marks) - self._marks, frozenset(marks)
        if not new:
            return
        store = self._runtime.store
        gone = {bundle: digest for bundle, digest in store.bindings().items() if removal_mark(bundle, digest) in new}
        for bundle, digest in gone.items():
            log.info("a bundle was removed from the cluster", bundle=bundle)
            try:
                await self._unbind(bundle, digest)
            except Exception as exc:  # Usually the disk is full. The next look tries again.
                error, what = as_failure(exc, store.data_dir), "a removed bundle keeps its id"
                bug = exc if error.code == "internal" else None
                log.warning(what, bundle=bundle, error=error.code, detail=error.message, exc_info=bug)
                self._marks -= {removal_mark(bundle, digest)}
        if gone or len(new) == len(marks):  # There may have been more removals than it names.
            self._tell_masters()
            self._wake.set()

    def request(self, bundle: BundleId) -> None:
        """Starts fetching a bundle for a local user unless it is here. Earlier failures do not
        delay it."""
        if not self._is_here(bundle):
            self._requested.add(bundle)
        self._not_before.pop(bundle, None)
        self._errors.pop(bundle, None)
        if bundle in self._fetches and (digest := self._runtime.store.lookup(bundle)) is not None:
            self._limit(bundle, digest)
        self._wake.set()

    async def checked(self, bundle: BundleId, paths: Collection[str] | None = None) -> StoredBundle | None:
        """Returns the bundle if it is here and the given files (None: all files) are as they were
        published.

        Otherwise it is fetched again.
        """
        digest = self._runtime.store.lookup(bundle)
        if digest is None or self._runtime.store.get(digest) is None:
            return None
        stored = await self._hand_outs.checked(digest, paths)
        if stored is None:
            self.request(bundle)
        return stored

    async def checked_file(self, bundle: BundleId, digest: Digest, relative: str) -> str | None:
        """Returns the path of one file if it is as it was published. Otherwise the bundle is
        fetched again.

        See HandOuts.file.
        """
        path = await self._hand_outs.file(digest, relative)
        if path is None:
            self.request(bundle)
        return path

    def trouble(self, bundle: BundleId) -> str:
        """Returns why the last fetch of a bundle failed; empty if it has not failed."""
        error = self.error(bundle)
        return "" if error is None else error.message

    async def checked_view(self, bundle: BundleId) -> HostBundleView:
        """Checks a bundle that is about to be read from disk, and returns its view."""
        await self.checked(bundle)
        return await self.view(bundle)

    def _is_here(self, bundle: BundleId) -> bool:
        digest = self._runtime.store.lookup(bundle)
        return digest is not None and digest not in self._removed and self._runtime.store.get(digest) is not None

    async def forget(self, bundle: BundleId) -> None:
        """Forgets the id of a bundle that was just removed from the cluster."""
        digest = self._runtime.store.lookup(bundle)
        if digest is not None:
            await self._unbind(bundle, digest)
            self._tell_masters()

    def assigned(self) -> frozenset[BundleId]:
        return self._assigned

    def claims(self, digest: Digest) -> frozenset[KeepReason]:
        """Returns the reasons why a digest must not be deleted to make room, besides the store's
        own."""
        claims = set()
        names = self._runtime.store.names(digest)
        if names & self._assigned:
            claims.add(KeepReason.ASSIGNED)
        elif not self.knows_assignment:
            claims.add(KeepReason.ASSIGNMENT_UNKNOWN)
        # A removed bundle has no name, and a program may use it.
        if names & self._requested or any(map(self.is_leased, names)) or self.is_content_leased(digest):
            claims.add(KeepReason.IN_USE)
        if digest in self.holds.digests():
            claims.add(KeepReason.MOUNTED)
        if self._runtime.known.is_pinned(digest):
            claims.add(KeepReason.PINNED)
        elsewhere = self._runtime.known.replicas_elsewhere(digest)
        if not elsewhere:
            claims.add(KeepReason.COPIES_UNKNOWN if elsewhere is None else KeepReason.LAST_COPY)
        return frozenset(claims)

    async def run(self) -> None:
        """Keeps the bundles, for ever. Fetches go on if it fails, and end only with the daemon."""
        try:
            await self._keep()
        except asyncio.CancelledError:
            fetches = list(self._fetches.values())
            for fetch in fetches:
                fetch.cancel()
            # The tasks use resources that are closed after this.
            await asyncio.gather(self._forgetting.close(), *fetches, return_exceptions=True)
            raise

    async def _keep(self) -> None:
        while True:
            self._forget_unwanted_pauses()
            planned_at = time.monotonic()
            self._note_unwanted(planned_at)
            actions = keeping_plan.plan(self._state(planned_at), planned_at)
            self._lacks_room = False
            self._undone.intersection_update(actions)
            for action in actions:
                try:
                    await self._carry_out(action)
                    self._undone.discard(action)
                except Exception as exc:
                    self._failed_to(action, exc)
            self._forgetting.begin()
            self.after_round()
            try:
                pause = secs_until_retry(self._not_before.values(), planned_at, time.monotonic(), LOOK_SECS)
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    def _failed_to(self, action: keeping_plan.Action, exc: Exception) -> None:
        """Notes that an action failed. Usually the disk is full. The next round tries again."""
        if action not in self._undone:
            error, what = as_failure(exc, self._runtime.store.data_dir), type(action).__name__
            bug = exc if error.code == "internal" else None
            log.warning(
                "action failed, will be retried", what=what, error=error.code, detail=error.message, exc_info=bug
            )
        self._undone.add(action)

    def _forget_unwanted_pauses(self) -> None:
        for bundle in self._not_before.keys() - self._assigned - self._requested:
            del self._not_before[bundle]

    def _note_unwanted(self, now: float) -> None:
        """Notes what has arrived in part and nobody wants. Without the assignment it is not known
        what somebody wants."""
        store, under_way = self._runtime.store, self._runtime.fetches.under_way()
        wanted = self._assigned | self._requested
        left = [d for d in store.arriving() if d not in under_way and not store.names(d) & wanted]
        self._unwanted = {d: self._unwanted.get(d, now) for d in left} if self.knows_assignment else {}

    def _state(self, now: float) -> keeping_plan.KeepingState:
        store, engine = self._runtime.store, self._runtime.engine
        return keeping_plan.KeepingState(
            assigned=self._assigned,
            requested=frozenset(self._requested),
            bindings=store.bindings(),
            idle_secs={d: max(0.0, time.time() - s.used_at) for d, s in store.published().items()},
            seeding=frozenset(t.digest for t in engine.transfers()),
            fetching=frozenset(self._fetches),
            removed=frozenset(self._removed),
            unknown=frozenset(self._unknown),
            not_before=dict(self._not_before),
            seed_secs=self._seed_secs,
            priorities={bundle: terms.priority for bundle, terms in self._terms.items()},
            needed=self._needed,
            limited=frozenset(bundle for bundle, terms in self._terms.items() if terms.rate),
            stuck=self._stuck() if self._fetches else frozenset(),
            unwanted_secs={digest: now - since for digest, since in self._unwanted.items()},
            held=self._held(),
            lacks_room=self._lacks_room,
        )

    def _held(self) -> frozenset[Digest]:
        """Returns what programs use or have mounted, removed bundles too."""
        return self.holds.digests() | self.leased_digests()

    def _is_held(self, digest: Digest) -> bool:
        return digest in self.holds.digests() or self.is_content_leased(digest)

    def _stuck(self) -> frozenset[BundleId]:
        """Returns the bundles that are fetched and do not come."""
        digests = {entry.digest for entry in self._runtime.swarm_entries() if entry.problem}
        return frozenset(bundle for bundle in self._fetches if self._runtime.store.lookup(bundle) in digests)

    async def _carry_out(self, action: keeping_plan.Action) -> None:
        match action:
            case FetchBundle(bundle):
                self._fetches[bundle] = asyncio.create_task(self._fetch(bundle), name=f"keep {bundle}")
            case DropBundle(digest) if not self._runtime.turn(digest).locked():
                async with self._runtime.turn(digest):
                    await self._drop_removed(digest)
            case DropArrival(digest) if not self._runtime.turn(digest).locked():
                async with self._runtime.turn(digest):
                    await self._drop_arrival(digest)
            case CancelFetch(bundle):
                await self._give_up(bundle)
            case BeginSeeding(digest):
                await self._runtime.transfers.seed(digest)
                self._tell_masters(AT_ONCE)
            case StopSeeding(digest):
                await self._runtime.transfers.stop_seeding(digest)

    async def _drop_removed(self, digest: Digest) -> None:
        if digest not in self._removed:
            return  # It was uploaded again since the plan.
        names = self._runtime.store.names(digest)
        # Dropping first frees the room that updating the names may need.
        if not await self._runtime.drop(digest, lambda: self._is_held(digest)):
            return
        log.info("bundle removed", digest=digest)
        for bundle in names:
            await self._unbind(bundle, digest)

    async def _unbind(self, bundle: BundleId, digest: Digest) -> None:
        # A request that is not fetched yet stays: the bundle may have been uploaded again.
        if bundle in self._fetches and bundle in self._requested:
            self._requested.discard(bundle)
            self._errors[bundle] = _Failure(TorrentdistError("bundle_not_found", id=bundle), time.monotonic())
        if self._runtime.store.names(digest) <= {bundle}:  # Another bundle with this content may be new.
            self._given.pop(digest, None)
        if self._runtime.store.lookup(bundle) == digest:
            await self._runtime.store.unbind(bundle)
        self._forgetting.note(bundle, digest)
        self._assign()

    async def _drop_arrival(self, digest: Digest) -> None:
        """Drops what has arrived of a bundle. One that was published here once and is damaged stays
        unless a master has it."""
        arrival = await self._runtime.store.arrival(digest)
        if arrival is None or (arrival.set_aside and not self._runtime.known.replicas_elsewhere(digest)):
            return
        if digest in self._runtime.fetches.under_way():
            return  # Somebody wants it since the plan.
        log.info("what has arrived of a bundle is dropped, nobody wants it any more", digest=digest)
        names = self._runtime.store.names(digest)
        await self._runtime.drop(digest)
        for bundle in names:
            self._forgetting.note(bundle, digest)

    async def _give_up(self, bundle: BundleId) -> None:
        """Ends a fetch that nobody wants any more. What has arrived is dropped, also if it was
        published meanwhile: outside of the swarm, no master would say that it is removed."""
        log.info("a fetch is given up, nobody wants the bundle any more", bundle=bundle)
        store, fetch = self._runtime.store, self._fetches.get(bundle)
        if fetch is None:
            return
        before, digest = store.published_digests(), self._contents.get(bundle)
        fetch.cancel()
        await asyncio.wait({fetch}, timeout=GIVE_UP_SECS)
        if fetch.done() and self._fetches.get(bundle) is fetch:
            del self._fetches[bundle]  # It was cancelled before it began.
        digest = store.lookup(bundle) or digest
        if digest is None:
            return
        names = store.names(digest).union(one for one, content in self._contents.items() if content == digest)
        if digest not in before and not names & (self._assigned | self._requested):
            await self._runtime.drop(digest, lambda: self._is_held(digest))
        self._forgetting.note(bundle, digest)

    async def _fetch(self, bundle: BundleId) -> None:
        asked_at = time.monotonic()
        try:
            meta = await self._trusted_metafile(bundle)
            self._contents[bundle] = meta.digest
            self._limit(bundle, meta.digest)
            plugin = None if self._plain_metafile else await self._links.plugin_metafile(meta.digest)
            await self._runtime.fetches.fetch(bundle, meta, plugin_metafile=plugin)
            if self._runtime.store.lookup(bundle) != meta.digest:  # It was removed meanwhile.
                if bundle in self._assigned | self._requested:
                    return  # and is wanted again since
                raise TorrentdistError("bundle_not_found", id=bundle)
            self._failures.pop(bundle, None)
            self._not_before.pop(bundle, None)
            self._errors.pop(bundle, None)
            # A bundle that a user requested once is cached, not kept.
            self._requested.discard(bundle)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # The bundle was removed meanwhile.
            self._failed(bundle, TorrentdistError("bundle_not_found", id=bundle), asked_at)
        except Exception as exc:
            self._failed(bundle, as_failure(exc, self._runtime.store.data_dir), asked_at)
        finally:
            self._fetches.pop(bundle, None)
            self._contents.pop(bundle, None)
            self._wake.set()
            async with self._changed:
                self._changed.notify_all()

    def _failed(self, bundle: BundleId, error: TorrentdistError, asked_at: float) -> None:
        failures = self._failures.get(bundle, 0) + 1
        self._failures[bundle] = failures
        self._errors[bundle] = _Failure(error, asked_at)
        self._lacks_room |= error.code == "disk_full"
        self._not_before[bundle] = time.monotonic() + pause_secs(
            failures, keeping_plan.FIRST_RETRY_SECS, keeping_plan.LONGEST_RETRY_SECS, random.random()
        )
        if bundle not in self._assigned:
            self._requested.discard(bundle)
            self._not_before.pop(bundle, None)
            self._forget_old_failures()
        bug = error.__cause__ if error.code == "internal" else None
        log.warning(
            "fetch failed", bundle=bundle, error=error.code, detail=error.message, failures=failures, exc_info=bug
        )

    def _forget_old_failures(self) -> None:
        """Keeps the last failures of bundles that users asked for. They may ask for any name."""
        unassigned = [bundle for bundle in self._errors if bundle not in self._assigned]
        for bundle in unassigned[: max(0, len(unassigned) - MOST_FAILURES)]:
            del self._errors[bundle]
            self._failures.pop(bundle, None)

    async def _trusted_metafile(self, bundle: BundleId) -> Metafile:
        """Returns the metafile of content that may be used under this id."""
        meta = await self._metafile(bundle)
        try:
            await self._signatures.check(bundle, meta.digest)
        except TorrentdistError as error:
            self._runtime.fetches.refuse(meta, error)
            raise
        return meta

    async def _metafile(self, bundle: BundleId) -> Metafile:
        """Returns the metafile from a master or, if no master answers, from the local store."""
        try:
            meta, zxid = await self._links.dated_metafile(bundle, self._runtime.fetches.updates)
            self.hear_given(meta.digest, zxid)
            self._unknown.discard(meta.digest)
            return meta
        except TorrentdistError as error:
            digest = self._runtime.store.lookup(bundle)
            own = await self._runtime.store.metafile(digest) if digest else None
            if own is None or error.code not in NO_MASTER:
                raise
            return own

    async def view(self, bundle: BundleId) -> HostBundleView:
        """Returns the view. Raises an error if the bundle is here and must not be used."""
        view = self._view(bundle)
        if view.digest is None or view.state is not HostState.DONE:
            return view
        await self.verify(bundle, view.digest)
        meta = await self._runtime.store.metafile(view.digest) if view.files == 1 else None
        single_file = meta is not None and meta.single_file
        return msgspec.structs.replace(view, single_file=single_file, signatures=self._signatures.of(bundle))

    async def verify(self, bundle: BundleId, digest: Digest) -> None:
        """Raises an error if this host must not use this content under this id."""
        await self._signatures.check(bundle, digest)

    def _view(self, bundle: BundleId) -> HostBundleView:
        """Returns the view without what only the metafile and the signatures know."""
        store = self._runtime.store
        digest = store.lookup(bundle)
        stored = store.get(digest) if digest else None
        if stored is not None:
            return HostBundleView(
                id=bundle,
                digest=digest,
                state=HostState.DONE,
                path=str(stored.content),
                size=stored.size,
                files=stored.files,
                transfer=self._transfer(digest),
            )
        error = self.error(bundle)
        if bundle in self._fetches:
            return HostBundleView(id=bundle, digest=digest, state=HostState.FETCHING, transfer=self._transfer(digest))
        if error is not None:
            return HostBundleView(id=bundle, digest=digest, state=HostState.FAILED, reason=error.message)
        if bundle in self._assigned or bundle in self._requested:
            return HostBundleView(id=bundle, digest=digest, state=HostState.WAITING)
        raise TorrentdistError("bundle_not_found", id=bundle)

    def fetching(self, bundle: BundleId) -> bool:
        return bundle in self._fetches

    def error(self, bundle: BundleId, since: float = -math.inf) -> TorrentdistError | None:
        """Returns the error of the last fetch if that asked masters after this time (monotonic)."""
        failure = self._errors.get(bundle)
        return failure.error if failure is not None and failure.asked_at >= since else None

    def _transfer(self, digest: Digest | None) -> TransferView | None:
        return self._runtime.transfer_view(digest) if digest else None

    def _is_over(self, bundle: BundleId, since: float) -> bool:
        """Returns whether the bundle is done or failed. A failure from before `since` does not
        count, and has the bundle fetched again."""
        state = self._view(bundle).state
        if state is HostState.FAILED and self.error(bundle, since) is None:
            self.request(bundle)
            return False
        return state in (HostState.DONE, HostState.FAILED)

    async def wait(self, bundle: BundleId, timeout: float, since: float = -math.inf) -> HostBundleView:
        """Returns the view once the bundle is done or failed, or after `timeout` seconds. A fetch
        that failed, but asked masters before `since` (monotonic), is begun again."""
        try:
            async with asyncio.timeout(timeout), self._changed:
                await self._changed.wait_for(lambda: self._is_over(bundle, since))
        except TimeoutError:
            pass
        return await self.view(bundle)
