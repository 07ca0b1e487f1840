"""Defines CodeDistributor, the interface of a plug-in, and HostServices, which the daemon provides
to it.

A plug-in only moves the bytes of a bundle's files between hosts.
Always: the host verifies a download against the bundle's own v2 metafile before it publishes, so
that a plug-in can fail but not corrupt.
Never: apply modes, symlinks or empty directories, write replica records, or publish. The host does
that.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from torrentdist.bundle.metafile import Metafile
from torrentdist.model.ids import Digest, MasterId

if TYPE_CHECKING:
    import httpx  # 4 MB of memory, for plug-ins that ask for it


class Holder(NamedTuple):
    """A live master with a verified copy of a bundle."""

    id: MasterId
    url: str


class HostServices(Protocol):
    """The services of the daemon for its plug-in: `conf["host"]` in prepare().

    Every call blocks, and may come from any thread except the daemon's event loop. A failure is a
    TorrentdistError.
    """

    def holders(self, bundle_id: str) -> list[Holder]:
        """Returns the live masters with a replica record of this bundle, which may include this
        host. Empty for an unknown bundle."""

    def http(self) -> httpx.Client:
        """A shared client that authenticates to the masters. Do not close it, and pass timeouts per
        request."""

    def metafile(self, bundle_id: str) -> bytes:
        """Returns the bundle's v2 metafile, which names its files and their hashes. Raises
        `bundle_not_found`."""

    def fetch_by_swarm(self, metafile: Metafile | bytes, dest_dir: Path, *, stall_secs: float) -> None:
        """Returns once every byte of the bundle is verified on disk. Seeding continues. `dest_dir`
        must be named `content`.

        Pass the parsed metafile if you have it. Good bytes that are there already are kept. Raises
        `timed_out` if no byte arrives for `stall_secs`.
        """

    def seed(self, metafile: Metafile | bytes, content_dir: Path) -> None:
        """Seeds this complete content. A second call changes nothing. `content_dir` must be named
        `content`."""

    def stop_seeding(self, digest: Digest) -> None:
        """Leaves the swarm, if this host is in it and has no other bundle of this content. The
        bytes stay."""


class CodeDistributor(Protocol):
    """A plug-in: named in `codedistributor.class` by its entry point or as `package.module:Class`,
    constructed without arguments.

    The methods are synchronous, and called from worker threads, several at once for different
    bundles. A failure is an exception, best a TorrentdistError. The host wraps any other. A class
    may say `joins_uploads = True` if download() works while the uploader is the only source.
    Standbys then start during the upload. It may say `keeps_limits = True` if it fetches by
    fetch_by_swarm() alone, which keeps the limits of a host and of a distribution. Otherwise
    `distribute --rate` is refused.
    """

    def prepare(self, conf: Mapping[str, Any]) -> None:
        """Called once, first.

        `conf` has `options` (codedistributor.options as configured), `data_dir` (str, an existing
        directory that is the plug-in's own) and `host` (HostServices).
        """

    def upload(self, dir_path: Path, bundle_id: str) -> Path:
        """Makes the files below `dir_path`, the bundle's complete content directory, available to
        other hosts.

        It must transfer regular files, including empty ones, but not symlinks, modes and empty
        directories. Returns the plug-in's own metafile, a file below its data_dir. A downloader
        gets only the bytes of this file. Idempotent: uploading the same bundle again succeeds, and
        continues an interrupted upload.
        """

    def download(self, dest_dir: Path, bundle_id: str, metafile: Path) -> list[Path]:
        """Puts every file of the bundle below `dest_dir`, which exists, and returns their paths.

        Files that are there already are used or replaced: complete ones that this host had in other
        bundles, and those of an earlier, interrupted download. Raises an error, within the
        plug-in's deadline, if anything is missing: it never returns before all files are complete.
        """

    def get_replication_count(self, bundle_id: str) -> int:
        """Returns the number of hosts from which this bundle can be downloaded now; 0 if it is
        unknown."""

    def cleanup(self, bundle_id: str) -> None:
        """Drops what this plug-in keeps for a bundle that was removed from the cluster, and nothing
        of any other bundle.

        Called on every host. Idempotent, even for a bundle that was never there. The host deletes
        its own copy.
        """

    def close(self) -> None:
        """Called once, as the last call. Downloads that still run may fail."""
