"""Finds and takes over the files of an arriving bundle that published bundles of this store hold.

Always: a whole file is read only after the store has checked it against its mark. Parts of files
are hashed after they were copied. What is damaged, was evicted or was rewritten meanwhile is left
to the swarm.
Never: publish, or run on an event loop: every method blocks.
Longer than most files: what is found and what is taken follow the same rules.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

from torrentdist.bundle.file_tree import TreeFile
from torrentdist.bundle.files.durability import disk_failures, write_durably
from torrentdist.bundle.metafile import Metafile, read_files
from torrentdist.bundle.packs.pack_filling import SmallSource, fill_packs, link_small
from torrentdist.bundle.reuse.chunk_plan import LikelyFiles, known_parts
from torrentdist.bundle.reuse.chunker import LARGE_FILE
from torrentdist.bundle.reuse.file_filling import Filling, GoOn, fill_files, is_new, settle_pieces, write_sent_files
from torrentdist.bundle.reuse.part_filling import (
    RECIPE,
    FilledParts,
    KnownChunks,
    Own,
    bytes_of_parts,
    fill_parts,
    large_own_files,
    read_recipe,
)
from torrentdist.bundle.reuse.recipe import Recipe
from torrentdist.bundle.reuse.reuse_plan import (
    KnownFile,
    Reused,
    bytes_by_source,
    choose_sources,
    known_files,
    wanted_hints,
    whole_packs,
    with_parts,
    without_packed,
)
from torrentdist.bundle.reuse.root_index import Hint, RootIndex
from torrentdist.bundle.store.store import Store, StoredBundle
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest

MOST_BUNDLES: Final = 16
"""Most bundles that are looked at for parts of files, the newest first."""
Progress = Callable[[int], None]
Sent = Mapping[bytes, bytes]
"""The content of small files by their roots."""
NOTHING_SENT: Final[Sent] = MappingProxyType({})
Among = Sequence[Digest] | None
"""The only bundles to take from; None: all."""
INDEX_SECS: Final = 1.0
"""How long a fetch waits for the index of a host that has just started. Bundles that are not in it
yet are not used."""


class StoreReuse:
    """Several threads may share it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._index = RootIndex()
        store.likely_sharers = lambda digest: self._index.alike({digest})
        self.may_link = False
        """Whether an arriving bundle may share files with others, since nobody writes into it but
        the engine."""
        self._turn = threading.Lock()
        self._taken_from: dict[Digest, set[Digest]] = {}
        """The sources of each bundle that was filled, until it is seen to be published or gone."""
        self._stale: set[Digest] = set()
        self._stale_again: set[Digest] = set()

    def catch_up(self, within: float = math.inf) -> None:
        """Adds the bundles that were published since the last call, the newest first, and drops
        those that are gone. Ends after about `within` seconds."""
        deadline = time.monotonic() + within
        for stored in self._not_indexed():
            with self._turn:
                if stored.digest not in self._index.digests():
                    self._index.add(stored.digest, [file.root for file in self._files(stored.digest)])
            if time.monotonic() > deadline:
                break
        gone = self._index.digests() - self._store.published_digests()
        with self._turn:
            alike = self._index.alike(gone)
            self._stale |= alike
            self._stale_again |= alike
            for digest in gone:
                self._index.drop(digest)
            for digest in self._taken_from.keys() - set(self._store.arriving()):
                self._stale |= self._taken_from.pop(digest)

    def take_stale(self) -> frozenset[Digest]:
        """Returns the bundles that may share other blocks than at the last call: sources of what
        was published or abandoned, and those that hold files of what was removed.

        The latter are returned twice, since XFS frees the blocks of removed files a moment later.
        """
        with self._turn:
            stale, self._stale, self._stale_again = frozenset(self._stale), self._stale_again, set()
        return stale & self._store.published_digests()

    @property
    def has_stale(self) -> bool:
        """Whether `take_stale` has something to return."""
        return bool(self._stale)

    def sources(
        self, meta: Metafile, within: float = INDEX_SECS, among: Sequence[Digest] | None = None
    ) -> list[Digest]:
        """Returns the published bundles that hold files of this one. Reads nothing that is indexed
        already. `among`: the only bundles to look at, the newest first; None: all."""
        self.catch_up(within)
        wanted = wanted_hints(meta.files)
        found = self._index.find(wanted.keys())
        newest = [stored.digest for stored in self._newest(among) if stored.digest in found]
        return choose_sources(wanted, {digest: found[digest] for digest in newest})

    def shared_bytes(self, meta: Metafile, sources: Sequence[Digest]) -> int:
        """Returns about how many bytes of this bundle the sources hold."""
        wanted = wanted_hints(meta.files)
        found = self._index.find(wanted.keys())
        held = set[Hint]().union(*(found[digest] for digest in sources if digest in found))
        return sum(wanted[hint] for hint in held)

    def known(
        self, meta: Metafile, within: float = INDEX_SECS, among: Sequence[Digest] | None = None
    ) -> list[KnownFile[Digest]]:
        """Returns the files of this bundle that published bundles hold, or those `among` them."""
        sources = self.sources(meta, within, among)
        wanted = (*whole_packs(meta), *meta.files)
        return without_packed(meta, known_files(wanted, ((digest, self._files(digest)) for digest in sources)))

    def reused(self, meta: Metafile, recipe: Recipe | None, among: Sequence[Digest] | None = None) -> Reused:
        """Returns how many bytes of this bundle published bundles hold, in whole files and by the
        recipes also in parts. Reads no content. `among`: as in `sources`."""
        known = self.known(meta, among=among)
        whole = {one.file.path for one in known}
        parts = {} if recipe is None else self.shared_parts(meta, recipe, whole, among)
        return Reused.of(bytes_by_source(known), parts, unread=len(set(among or ()) - self._index.digests()))

    def raw_recipe(self, digest: Digest) -> bytes | None:
        """Returns the recipe of a published or arriving bundle, if it was kept."""
        return read_recipe(self._store.object_dir(digest))

    def keep_recipe(self, digest: Digest, raw: bytes) -> None:
        """Keeps the recipe of a bundle that was begun. One that is lost costs only bytes."""
        with suppress(OSError):
            write_durably(self._store.object_dir(digest) / RECIPE, raw)

    def drop_recipe(self, digest: Digest) -> None:
        """Removes the recipe of a bundle, whose files have other chunks than it says."""
        with suppress(OSError):
            (self._store.object_dir(digest) / RECIPE).unlink(missing_ok=True)

    def wants_recipe(self, meta: Metafile) -> bool:
        """Whether parts of this bundle's large files are probably here."""
        known = {one.file.path for one in self.known(meta)}
        lacking = [file for file in meta.files if file.size > LARGE_FILE and file.path not in known]
        likely = LikelyFiles(self._own_files() if lacking else ())
        return any(likely.of(file) for file in lacking)

    def fill(
        self,
        meta: Metafile,
        go_on: GoOn,
        progress: Progress = lambda done: None,
        recipe: Recipe | None = None,
        among: Among = None,
        sent: Sent = NOTHING_SENT,
    ) -> Filling:
        """Takes everything that is known into the arriving bundle, by the recipe also parts of
        files. `progress` is called with the bytes that are filled so far. `among`: as in
        `sources`. `sent`: small files that came with the metafile, by their roots."""
        with disk_failures(self._store.object_dir(meta.digest), needed=meta.size):
            return self._fill(meta, go_on, progress, recipe, among, sent)

    def _fill(
        self, meta: Metafile, go_on: GoOn, progress: Progress, recipe: Recipe | None, among: Among, sent: Sent
    ) -> Filling:
        known = self.known(meta, among=among)
        if not known and recipe is None and not sent:
            return Filling()
        content = self._content(meta)
        new = is_new(content)
        small = {file.path for file in meta.packed.files}
        packed = [SmallSource(file, data=sent[file.root]) for file in meta.packed.files if file.root in sent]
        came = [one.file for one in packed]
        paths: set[str] = set()
        suspects: set[Digest] = set()
        done = 0

        def count(size: int) -> None:
            nonlocal done
            done += size
            progress(done)

        for digest in bytes_by_source(known):
            self._note_source(meta.digest, digest)
            mine = [one for one in known if one.source == digest]
            if (good := self._good(digest, mine)) is None:
                continue
            source = self._store.object_dir(digest) / "content"
            packed += [SmallSource(one.file, source, one.path) for one in good if one.file.path in small]
            whole = [one for one in good if one.file.path not in small]
            filled = fill_files(meta, content, source, whole, go_on=go_on, progress=count, links=self.may_link)
            is_sound = not self.may_link or self._link(digest, meta, {one.path for one in whole}, new, go_on)
            paths |= filled.paths
            if filled.wrong or len(good) < len(mine) or not is_sound:
                suspects.add(digest)
        in_packs = fill_packs(
            meta, content.parent, packed, go_on, lambda wrong: suspects.add(Digest(wrong.top.parent.name))
        )
        if size := bytes_of_parts(meta, in_packs):
            count(size)
        arrived = write_sent_files(meta, content, sent, go_on=go_on, progress=count)
        paths |= {file.path for file in arrived}
        have = settle_pieces(meta, content, paths, in_packs) if new and go_on() else None
        if recipe is not None and go_on():
            parts = self._fill_parts(meta, recipe, known, among, is_new=new, go_on=go_on)
            suspects |= {Digest(source.parent.name) for source in parts.suspects}
            if size := bytes_of_parts(meta, parts.pieces):
                count(size)
            if have is not None:
                have = with_parts(meta.wire_files, meta.piece_length, have, parts.pieces) if go_on() else None
        return Filling(done, have, frozenset(suspects), sum(file.size for file in [*came, *arrived]))

    def _fill_parts(
        self,
        meta: Metafile,
        recipe: Recipe,
        known: Sequence[KnownFile[Digest]],
        among: Among,
        *,
        is_new: bool,
        go_on: GoOn,
    ) -> FilledParts:
        skip = {one.file.path for one in known}
        own = self._own_files(among)
        parts = fill_parts(meta, self._content(meta), recipe, own, skip=skip, is_new=is_new, go_on=go_on)
        for source in parts.sources:
            self._note_source(meta.digest, Digest(source.parent.name))
        return parts

    def _link(self, digest: Digest, meta: Metafile, linked: set[str], is_new: bool, go_on: GoOn) -> bool:
        """Links the small files that another bundle holds too, and takes over the new times of its
        files. Returns whether its index is sound: a damaged one must not end this fetch."""
        others = self._small_in(digest, meta, self._store.object_dir(digest) / "content") if is_new else ()
        paths = linked.union(one.path for one in link_small(self._content(meta).parent, others, go_on))
        try:
            self._store.note_links(digest, paths, self._index.alike({digest}))
        except TorrentdistError as error:  # Its files are read when they are handed out.
            return error.code not in ("corrupt", "disk_error")
        return True

    def _small_in(self, digest: Digest, meta: Metafile, source: Path) -> list[SmallSource]:
        """Returns the small files that a bundle holds too, and that are as they were published."""
        known = known_files(meta.packed.files, [(digest, self._files(digest))]) if meta.packed.files else []
        good = self._good(digest, known) or []
        return [SmallSource(one.file, source, one.path) for one in good]

    def _note_source(self, arriving: Digest, source: Digest) -> None:
        with self._turn:
            self._taken_from.setdefault(arriving, set()).add(source)

    def shared_parts(
        self, meta: Metafile, recipe: Recipe, whole: Set[str], among: Sequence[Digest] | None = None
    ) -> dict[Digest, int]:
        """Returns how many bytes of the files other than `whole` published bundles hold, by the
        recipes of both. Reads no content."""
        counts = known_parts(meta, recipe, self._own_files(among), KnownChunks().stored, skip=whole)
        return {Digest(source.parent.name): count for source, count in counts.items()}

    def _good(self, digest: Digest, known: Sequence[KnownFile[Digest]]) -> list[KnownFile[Digest]] | None:
        """Returns the files that are as they were published. None: the bundle was removed, or its
        disk fails."""
        paths = {one.path for one in known}
        try:
            damaged = {damage.path for damage in self._store.check(digest, sorted(paths))}
        except TorrentdistError:
            return None
        return [] if damaged - paths else [one for one in known if one.path not in damaged]

    def _own_files(self, among: Sequence[Digest] | None = None) -> list[Own]:
        """Returns the large files of the newest bundles."""
        return [
            own
            for stored in self._newest(among)[:MOST_BUNDLES]
            for own in large_own_files(self._store.object_dir(stored.digest) / "content", self._files(stored.digest))
        ]

    def _newest(self, among: Sequence[Digest] | None) -> list[StoredBundle]:
        """Returns the published bundles, the newest first, or those `among` them in that order."""
        published = self._store.published()
        if among is not None:
            return [published[digest] for digest in dict.fromkeys(among) if digest in published]
        return sorted(published.values(), key=lambda stored: -stored.published_at)

    def _content(self, meta: Metafile) -> Path:
        return self._store.object_dir(meta.digest) / "content"

    def _not_indexed(self) -> list[StoredBundle]:
        if not self._store.published_digests() - self._index.digests():
            return []
        indexed = self._index.digests()
        lacking = [stored for digest, stored in self._store.published().items() if digest not in indexed]
        return sorted(lacking, key=lambda stored: -stored.published_at)

    def _files(self, digest: Digest) -> list[TreeFile]:
        """Returns the files of a published bundle; none if its metafile cannot be read."""
        try:
            raw = self._store.raw_metafile(digest)
            return [] if raw is None else list(read_files(raw))
        except TorrentdistError:
            return []
