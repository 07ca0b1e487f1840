"""What a plug-in is and what the daemon lends it: the seeds' ICodeDistributor in Python.

A plug-in moves the bytes of a bundle's files between hosts, and nothing else. Always holds: the host verifies what
a plug-in downloads against the bundle's own v2 metafile before it publishes, so a plug-in can fail but not corrupt.
Must not do: apply modes, symlinks or empty directories, write replica records, or publish; those are the host's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import httpx

from torrentdist.model.ids import Digest, MasterId


class Holder(NamedTuple):
    """A live master with a verified copy."""

    id: MasterId
    url: str


class HostServices(Protocol):
    """What the daemon lends to its plug-in: `conf["host"]` in prepare().

    Every call blocks and may come from any thread but the daemon's event loop. Failures are TorrentdistError.
    """

    def holders(self, bundle_id: str) -> list[Holder]:
        """The live masters with a replica record of this bundle, maybe this one too; none for an unknown bundle."""

    def http(self) -> httpx.Client:
        """A client that authenticates to the cluster's masters. Shared: don't close it, pass timeouts per request."""

    def metafile(self, bundle_id: str) -> bytes:
        """The bundle's v2 metafile: which files there are and what they contain. Unknown: `bundle_not_found`."""

    def fetch_by_swarm(self, metafile: bytes, dest_dir: Path, *, stall_secs: float) -> None:
        """Return when every byte of the bundle is verified on disk; seeding goes on. `dest_dir` is called `content`.

        What is there already is verified and kept. Raises `timed_out` once no byte has arrived for `stall_secs`.
        """

    def seed(self, metafile: bytes, content_dir: Path) -> None:
        """Offer this complete content to the swarm. Twice is as good as once. `content_dir` is called `content`."""

    def stop_seeding(self, digest: Digest) -> None:
        """Leave the swarm; nothing happens if this host is not in it. The bytes stay."""


class CodeDistributor(Protocol):
    """Named in `codedistributor.class` as `package.module:Class` and constructed without arguments.

    The methods are synchronous and called from worker threads, several at once for different bundles. A failure is
    an exception, best a TorrentdistError; the host wraps any other. A class may say `joins_uploads = True` if
    download() works while the uploader is the only source, before there is any holder: standbys then start while the
    upload runs.
    """

    def prepare(self, conf: Mapping[str, Any]) -> None:
        """Called once, first. `conf`: `options` (codedistributor.options as configured), `data_dir` (str, an existing
        directory that is the plug-in's own) and `host` (HostServices)."""

    def upload(self, dir_path: Path, bundle_id: str) -> Path:
        """Make the files below `dir_path`, the bundle's complete content directory, available to the other hosts.

        Regular files only, the empty ones too; symlinks in it, modes and empty directories need not travel.
        Returns the plug-in's own metafile, a file below its data_dir: its bytes are all that a downloader is given.
        Idempotent: uploading the same bundle again succeeds, and goes on where a broken upload ended.
        """

    def download(self, dest_dir: Path, bundle_id: str, metafile: Path) -> list[Path]:
        """Put every file of the bundle below `dest_dir`, which exists, and return their paths.

        What an earlier, broken download left in `dest_dir` is used or replaced. Raises, within the plug-in's
        deadline, if anything is missing: it never returns before all files are there with all of their bytes.
        """

    def get_replication_count(self, bundle_id: str) -> int:
        """How many hosts this bundle can be had from now; 0 if it is unknown."""

    def cleanup(self, bundle_id: str) -> None:
        """The bundle was removed from the cluster: drop what this plug-in keeps for it, and nothing of any other.

        Called on every host. Idempotent, also for a bundle that was never there. The host's own copy is the host's.
        """

    def close(self) -> None:
        """Called once, last; downloads that still run may fail."""
